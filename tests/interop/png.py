# SPDX-License-Identifier: Apache-2.0
"""Makes the PNG files of a browser small: a palette of the 255 commonest colours."""
import collections
import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def size(data):
    """Width and height of a PNG file."""
    return struct.unpack(">II", data[16:24])


def chunks(data):
    at = len(SIGNATURE)
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        yield kind, data[at + 8:at + 8 + length]
        at += 12 + length


def paeth(a, b, c):
    distances = abs(b - c), abs(a - c), abs(a + b - 2 * c)
    return (a, b, c)[distances.index(min(distances))]


def rows(data):
    """The lines of a picture with 8 bits a channel, without their filters; bytes a pixel."""
    packed = b"".join(body for kind, body in chunks(data) if kind == b"IDAT")
    width, height = size(data)
    step = {2: 3, 6: 4}[data[25]]
    raw = zlib.decompress(packed)
    before = bytes(width * step)
    for y in range(height):
        start = y * (width * step + 1)
        kind, line = raw[start], bytearray(raw[start + 1:start + 1 + width * step])
        for i in range(len(line) if kind else 0):
            a = line[i - step] if i >= step else 0
            c = before[i - step] if i >= step else 0
            b = before[i]
            line[i] = (line[i] + (0, a, b, (a + b) // 2, paeth(a, b, c))[kind]) & 255
        before = bytes(line)
        yield [before[i:i + 3] for i in range(0, len(before), step)]


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body \
        + struct.pack(">I", zlib.crc32(kind + body))


def shrink(data):
    """The picture with at most 255 colours."""
    lines = list(rows(data))
    counts = collections.Counter(pixel for line in lines for pixel in line)
    palette = [pixel for pixel, _ in counts.most_common(255)]
    number = {}
    for pixel in counts:
        number[pixel] = min(range(len(palette)), key=lambda n: sum(
            (x - y) ** 2 for x, y in zip(palette[n], pixel)))
    packed = b"".join(b"\0" + bytes(number[pixel] for pixel in line) for line in lines)
    width, height = size(data)
    return SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)) \
        + chunk(b"PLTE", b"".join(palette)) + chunk(b"IDAT", zlib.compress(packed, 9)) \
        + chunk(b"IEND", b"")
