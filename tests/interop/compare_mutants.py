#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""berth's header parser against the reference implementation.

    compare_mutants.py [COUNT [SEED]]          (BERTH_BUILD names the folder of the build)

Edits a few headers token by token, the same way every time, and asks `make_verdict` and
safetensors what they are. The verdicts must be the same, category included, and so must names,
dtypes, shapes, extents and metadata of what is accepted. Where berth differs on purpose, what it
must say is computed from the header, not excused: repeated names and keys, an entry as array or a
dtype as object, U+0000 in a name, more than 64 dimensions, dtypes that are none, where they are
all that is wrong with the JSON.
Tensors with the same extent are visited by the reference in random order: its verdict must then
be one that some order gives.
All files below ../shared/golden, when there are any, are compared too, offset by offset.
"""
import itertools
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import safetensors

BITS = {"U64": 64, "I64": 64, "F64": 64, "C64": 64, "F32": 32, "U32": 32, "I32": 32, "BF16": 16,
        "F16": 16, "U16": 16, "I16": 16, "F8_E5M2FNUZ": 8, "F8_E4M3FNUZ": 8, "F8_E8M0": 8,
        "F8_E4M3": 8, "F8_E5M2": 8, "I8": 8, "U8": 8, "F6_E3M2": 6, "F6_E2M3": 6, "F4": 4,
        "BOOL": 8}
# The beginning of the reference's message -> berth's name of the reason.
REASONS = {"header too small": "header_too_small", "header too large": "header_too_large",
           "invalid header length": "header_length", "invalid UTF-8 in header": "header_utf8",
           "invalid JSON in header": "header_json", "invalid offset": "offset",
           "overflow computing": "overflow",
           "The slice is slicing for subbytes": "subbyte",
           "invalid shape, data type": "size_mismatch",
           "incomplete metadata": "coverage"}
EARLY = {"header_too_small", "header_too_large", "header_length", "header_utf8", "header_json"}
MAX_U64 = 2**64 - 1


# ---- making mutants -----------------------------------------------------------------------------

def entry(name, dtype, shape, begin, end):
    return f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}'


def header(*members):
    return "{" + ",".join(members) + "}"


SEEDS = [  # header, bytes of data
    (header(entry("a", "F32", "[2]", 0, 8)), 8),
    (header('"__metadata__":{"format":"pt","k":"v"}', entry("a", "F32", "[2]", 0, 8),
            entry("b", "U8", "[4]", 8, 12)), 12),
    (header(entry("b", "BF16", "[2,1]", 4, 8), entry("a", "F4", "[8]", 0, 4),
            entry("c", "I8", "[0]", 8, 8)), 8),
    (header(entry("a\\n", "F6_E2M3", "[4]", 0, 3), entry("\\ud83d\\ude00", "BOOL", "[]", 3, 4),
            '"__metadata__":null'), 4),
    (' {\n "x" : { "shape" : [ 2 , 3 ] , "data_offsets" : [ 0 , 6 ] , "dtype" : "U8" , '
     '"n" : [ { "y" : -1.5e3 } , true , null , "s" ] } , "é" : { "dtype" : "F8_E8M0" , '
     '"data_offsets" : [ 6 , 7 ] , "shape" : [ 1 ] } } \t\r\n', 7),
    (header(*(entry(chr(97 + i), "U8", "[1]", i, i + 1) for i in range(6))), 6),
    (header(entry("p", "U8", "[0]", 0, 0), entry("q", "U8", "[0,5]", 0, 0),
            entry("r", "C64", "[1]", 0, 8)), 8),
    (header(entry("r", "U8", "[" + "1," * 63 + "1]", 0, 1)), 1),
    (header(entry("big", "U8", "[2305843009213693951]", 0, 2305843009213693951)), 0),
]
NUMBERS = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "12", "16", "24", "32",
           "4294967296", "9007199254740993", "9223372036854775808", "18446744073709551615",
           "18446744073709551616", "99999999999999999999999999"]
STRINGS = ['""', '"a"', '"b"', '"\\u0061"', '"\\u0000"', '"a\\u0000"', '"\\ud800"', '"\\ude00"',
           '"\\q"', '"\\/\\b\\f"', '"\x01"', '"\x7f"', '"__metadata__"', '"\\u005f_metadata__"',
           '"__METADATA__"', '"dtype"', '"shape"', '"data_offsets"', '"\\u0064type"', '"Dtype"',
           '"x"', '"format"', '"F32"', '"f32"', '"F4"', '"F6_E3M2"', '"F6"', '"U64"', '"BF16"',
           '"I4"', '"F\\u00332"']
TOKENS = NUMBERS + STRINGS + [
    "{", "}", "[", "]", ",", ":", " ", "\n", "\t", "\r", "\v", "\0", "\u00a0", "\ufeff",
    "-0", "-1", "01", "1.0", "2e0", "1e400", "1e-400", "1.", ".5", "+1", "0x2", "-", "1E2",
    "true", "false", "null", "tru", "NaN", "Infinity",
    "{}", "[]", "[0]", "[1]", "[2]", "[4]", "[8]", "[0,0]", "[0,8]", "[8,12]", "[4,4]", "[[]]",
    "[1,]", "[" * 124 + "]" * 124, "[" * 126 + "]" * 126, "[" + "1," * 63 + "1]",
    "[" + "1," * 64 + "1]", '{"a":1,"a":2}', '{"F32":null}', '{"U8":null}', '{"F32":1}',
    '["U8",[1],[0,1]]', '["F32",[2],[0,8]]', '["U8",[0],[0,0],1]', '{"k":"1","k":"2"}',
    '{"k\\u0000":"v"}', '{"k":"\\u0000"}', '{"k":1}', '"__metadata__":{}', '"x":1',
    '"x":{"y":[]}', entry("a", "U8", "[0]", 0, 0), entry("z", "U8", "[0]", 8, 8),
    entry("\\u0061", "F32", "[2]", 0, 8)]


def tokens_of(text):
    """JSON tokens of a well-formed text, white space included."""
    out, i = [], 0
    while i < len(text):
        j = i + 1
        if text[i] == '"':
            while text[j] != '"':
                j += 2 if text[j] == "\\" else 1
            j += 1
        elif text[i].isalnum() or text[i] in "+-.":
            while j < len(text) and (text[j].isalnum() or text[j] in "+-."):
                j += 1
        out.append(text[i:j])
        i = j
    return out


def edit(rng, tokens):
    i = rng.randrange(len(tokens)) if tokens else 0
    kind = rng.randrange(8)
    if kind == 0 and tokens:
        del tokens[i]
    elif kind == 1:
        tokens.insert(i, rng.choice(TOKENS))
    elif kind == 2 and tokens:
        j = rng.randrange(len(tokens))
        tokens[i], tokens[j] = tokens[j], tokens[i]
    elif kind == 3 and tokens:  # a stretch again
        j = min(len(tokens), i + rng.randrange(1, 24))
        tokens[j:j] = [","] + tokens[i:j] if rng.randrange(2) else tokens[i:j]
    elif kind == 4 and tokens:  # a stretch less
        del tokens[i:i + rng.randrange(1, 8)]
    elif tokens:
        tokens[i] = rng.choice(TOKENS)


# Edits that keep the JSON well-formed reach the later checks: a number for a number.
def gentle_edit(rng, tokens):
    places = [i for i, t in enumerate(tokens) if t.isdigit() or t[0] == '"']
    if not places:
        edit(rng, tokens)
        return
    i = rng.choice(places)
    if tokens[i].isdigit():
        near = str(max(0, int(tokens[i]) + rng.choice((-1, 1, 4, 8))))
        tokens[i] = rng.choice(NUMBERS) if rng.randrange(2) else near
    else:
        same = [t for t in tokens if t[0] == '"']
        tokens[i] = rng.choice(same) if rng.randrange(2) else rng.choice(STRINGS)


def pattern(count):
    """Data in which every stretch tells where it begins."""
    return bytes((i * 7 + 13) % 251 for i in range(count))


def mutant(rng):
    """Length given, header, data."""
    text, size = rng.choice(SEEDS)
    tokens = tokens_of(text)
    change = edit if rng.randrange(3) == 0 else gentle_edit
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        change(rng, tokens)
    raw = bytearray("".join(tokens).encode())
    given = None
    what = rng.randrange(40)
    if what == 0 and raw:
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    elif what == 1 and raw:
        del raw[rng.randrange(len(raw)):]
    elif what == 2:
        raw += rng.choice((b" ", b"\0", b"\n", b"x", b"\xe2\x82", b"\xc0\x80"))
    elif what == 3:
        given = max(0, len(raw) + rng.choice((-2, -1, 1, 2, 8, 9, 20)))
    elif what == 4:
        given = rng.choice((0, 2**63, MAX_U64, 100_000_000, 100_000_001, 2**32 + 2))
    elif what < 12:
        size = max(0, size + rng.choice((-4, -1, 1, 4, 8)))
    data = bytes(size) if rng.randrange(4) == 0 else pattern(size)
    return len(raw) if given is None else given, bytes(raw), data


# ---- what berth must say ------------------------------------------------------------------------

class Pairs(list):
    """Members of an object in order, repeated ones included."""


def members_of(text):
    return json.loads(text, object_pairs_hook=Pairs, parse_constant=lambda word: None)


def with_known_dtypes(raw):
    """The header with U8 for each dtype that is a string and none of the format's."""
    def known(match):
        try:
            key, dtype = json.loads(match[1]), json.loads(match[3])
            dtype.encode()
        except ValueError:  # no JSON, or half a surrogate pair
            return match[0]
        return match[1] + match[2] + '"U8"' if key == "dtype" and dtype not in BITS else match[0]
    string = r'("(?:[^"\\]|\\.)*")'
    return re.sub(string + r"([ \t\r\n]*:[ \t\r\n]*)" + string, known, raw.decode()).encode()


def verdict_in_order(entries, data_bytes):
    """The format's checks on entries in this order."""
    position = 0
    for _, dtype, shape, begin, end in entries:
        if begin != position or end < begin:
            return "offset"
        bits = 1
        for dim in shape + [BITS[dtype]]:
            bits *= dim
            if bits > MAX_U64:
                return "overflow"
        if bits % 8:
            return "subbyte"
        if end - begin != bits // 8:
            return "size_mismatch"
        position = end
    return "ok" if position == data_bytes else "coverage"


def orders(entries):
    """Every order that only exchanges tensors of one extent; None for too many to try."""
    ordered = sorted(entries, key=lambda e: e[3:])
    groups = [list(group) for _, group in itertools.groupby(ordered, key=lambda e: e[3:])]
    total = 1
    for group in groups:
        for i in range(2, len(group) + 1):
            total *= i
    if total > 720:
        return None
    return [[e for group in choice for e in group]
            for choice in itertools.product(*(itertools.permutations(g) for g in groups))]


class Difference(Exception):
    pass


def expected(reference, raw, data_bytes):
    """berth's verdict, from the reference's and the header; the reference's is checked here."""
    is_unknown = reference == "header_json"
    if is_unknown:  # perhaps for a dtype alone
        raw = with_known_dtypes(raw)
        reference, _ = ask_reference(struct.pack("<Q", len(raw)) + raw + bytes(data_bytes))
    if reference in EARLY:
        return reference, None
    members = members_of(raw.decode())
    tensors = [(name, value) for name, value in members if name != "__metadata__"]
    metadata = [value for name, value in members if name == "__metadata__"]
    pairs = metadata[0] if metadata and metadata[0] is not None else []
    entries = []
    for name, value in tensors:
        if not isinstance(value, Pairs):
            return "header_json", None
        fields = {k: v for k, v in value if k in ("dtype", "shape", "data_offsets")}
        if not isinstance(fields["dtype"], str):
            return "header_json", None
        entries.append((name, fields["dtype"], fields["shape"], *fields["data_offsets"]))
    names = [e[0] for e in entries]
    keys = [k for k, _ in pairs]
    special = None
    if any("\0" in text for text in names + keys):
        special = "name"
    elif any(len(e[2]) > 64 for e in entries):
        special = "rank"
    elif is_unknown:
        special = "unsupported"
    elif len(set(names)) < len(names) or len(set(keys)) < len(keys):
        special = "duplicate"
    # The reference keeps the last tensor of a name; what it says must follow from what it kept.
    kept = list({e[0]: e for e in entries}.values())
    possible = orders(kept)
    verdicts = {verdict_in_order(order, data_bytes) for order in possible or []}
    if possible is not None and reference not in verdicts:
        raise Difference(f"the reference says {reference}, which no order gives")
    if special is not None:
        return special, None
    entries.sort(key=lambda e: (e[3], e[4], e[0].encode()))
    return verdict_in_order(entries, data_bytes), (entries, dict(pairs))


# ---- asking both --------------------------------------------------------------------------------

def ask_reference(blob):
    try:
        return "ok", safetensors.deserialize(blob)
    except safetensors.SafetensorError as problem:
        message = str(problem).split(": ", 1)[1]
        for beginning, reason in REASONS.items():
            if message.startswith(beginning):
                return reason, None
        raise


def ask_berth(program, cases):
    """Verdict lines on (file size, first bytes)."""
    with tempfile.TemporaryFile() as file:
        for size, first in cases:
            file.write(struct.pack("<QQ", size, len(first)))
            file.write(first)
        file.seek(0)
        done = subprocess.run([program], stdin=file, stdout=subprocess.PIPE, check=True)
    return done.stdout.decode().split("\n")[:-1]


def parse_line(line):
    """("ok", [(name, dtype, shape, begin, end)], {key: value}), or (reason, None, None)."""
    words = line.split(" ")
    if words[0] != "ok":
        return words[0], None, None
    entries, pairs = [], {}
    for word in words[1:]:
        if "=" in word:
            key, value = word.split("=")
            pairs[bytes.fromhex(key).decode()] = bytes.fromhex(value).decode()
        else:
            name, dtype, dims, begin, end = word.split(":")
            shape = [int(dim) for dim in dims.split(",") if dim]
            entries.append((bytes.fromhex(name).decode(), dtype, shape, int(begin), int(end)))
    return "ok", entries, pairs


def check_contents(line, contents, wanted, data):
    """Names, dtypes, shapes and bytes of both, and extents and metadata of the header."""
    _, entries, pairs = parse_line(line)
    if (entries, pairs) != wanted:
        raise Difference(f"tables {entries} {pairs}, wanted {wanted}")
    theirs = sorted((name, info["dtype"], info["shape"], bytes(info["data"]))
                    for name, info in contents)
    ours = sorted((name, dtype, shape, data[begin:end])
                  for name, dtype, shape, begin, end in entries)
    if theirs != ours:
        raise Difference(f"{ours} against the reference's {theirs}")


def compare(case, line, counts):
    given, raw, data = case
    blob = struct.pack("<Q", given) + raw + data
    verdict, contents = ask_reference(blob)
    # With another length than the header's own, header and data divide elsewhere.
    inside = blob[8:8 + given] if given <= len(blob) - 8 else b""
    rest = blob[8 + len(inside):]
    must, wanted = expected(verdict, inside, len(rest))
    said = line.split(" ")[0]
    counts[said] = counts.get(said, 0) + 1
    if said != verdict:
        counts["differs on purpose"] = counts.get("differs on purpose", 0) + 1
    if said != must:
        raise Difference(f"berth says {said}, must say {must}, the reference says {verdict}")
    if said == "ok":
        check_contents(line, contents, wanted, rest)


def compare_mutants(program, count, seed):
    rng = random.Random(seed)
    counts, failures, done = {}, 0, 0
    while done < count:
        cases = [mutant(rng) for _ in range(min(20000, count - done))]
        blobs = [struct.pack("<Q", given) + raw + data for given, raw, data in cases]
        lines = ask_berth(program, [(len(blob), blob) for blob in blobs])
        if len(lines) != len(cases):
            raise SystemExit("make_verdict gave another number of verdicts")
        for case, line in zip(cases, lines):
            try:
                compare(case, line, counts)
            except Difference as difference:
                failures += 1
                if failures <= 10:
                    given, raw, data = case
                    print(f"FAILED: {difference}\n  N={given} data={len(data)} {raw!r}")
        done += len(cases)
    print(f"note: {done} mutants, "
          + ", ".join(f"{number} {name}" for name, number in sorted(counts.items())))
    return failures


def compare_golden(program, folder):
    """Number of files, number of differences."""
    files = sorted(folder.rglob("*.safetensors")) if folder.is_dir() else []
    failures = 0
    for path in files:
        with open(path, "rb") as file:
            prefix = file.read(8)
            length = struct.unpack("<Q", prefix)[0]
            raw = file.read(length)
        line = ask_berth(program, [(path.stat().st_size, prefix + raw)])[0]
        said, entries, pairs = parse_line(line)
        try:
            if said != "ok":
                raise Difference(line)
            _, wanted = expected("ok", raw, path.stat().st_size - 8 - length)
            if (entries, pairs) != wanted:
                raise Difference("other tables than the header's")
            with safetensors.safe_open(path, framework="numpy") as theirs:
                names = sorted(e[0] for e in entries)
                if sorted(theirs.keys()) != names or (theirs.metadata() or {}) != pairs:
                    raise Difference("other names or metadata than the reference's")
                for name, dtype, shape, _, _ in entries:
                    view = theirs.get_slice(name)
                    if (view.get_dtype(), view.get_shape()) != (dtype, shape):
                        raise Difference(f"{name}: {dtype} {shape}")
        except Difference as difference:
            failures += 1
            print(f"FAILED: {path}: {difference}")
    return len(files), failures


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 240_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 20_260_512
    root = Path(__file__).resolve().parent.parent.parent
    program = os.path.join(os.environ["BERTH_BUILD"], "tests", "make_verdict")
    failed = compare_mutants(program, count, seed)
    files, wrong = compare_golden(program, root.parent / "shared" / "golden")
    passed = count - failed
    if files:
        print(f"note: {files} golden files")
    else:
        print("skipped: no golden files")
    passed += files - wrong
    print(f"t: {passed} passed, {failed + wrong} failed, {0 if files else 1} skipped")
    return 1 if failed + wrong else 0


sys.exit(main())
