# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# A Slurm of one node that belongs to this script alone: sourced by tests/interop/parts.sh.
#
# Both daemons run in the foreground of nobody, as the user who calls, listen on the loopback
# device, and keep everything in one folder. Messages are not authenticated: what reaches them comes
# from this machine, and there is nothing to do there but what the caller may do anyway.

slurm_daemons=

has_slurm()
{
    for program in slurmctld slurmd sbatch srun squeue scancel sinfo; do
        PATH=$PATH:/usr/sbin:/sbin command -v $program >/dev/null 2>&1 || return 1
    done
}

free_ports()
{
    python3 -c '
import socket
sockets = [socket.socket() for _ in range(2)]
for s in sockets:
    s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in sockets))'
}

write_slurm_conf() # FOLDER CONTROLLER_PORT NODE_PORT
{
    node=$(uname -n | cut -d. -f1)
    cat <<CONF
ClusterName=berth
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=$2
SlurmdPort=$3
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/none
CredType=cred/none
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation=$1/state
SlurmdSpoolDir=$1/spool
SlurmctldPidFile=$1/slurmctld.pid
SlurmdPidFile=$1/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
KillWait=2
SlurmdParameters=config_overrides
NodeName=$node NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=$node Default=YES MaxTime=5 State=UP
CONF
}

# Waits until the node takes jobs.
start_slurm() # FOLDER
{
    mkdir -p "$1/state" "$1/spool"
    # shellcheck disable=SC2046 # two numbers
    write_slurm_conf "$1" $(free_ports) >"$1/slurm.conf"
    SLURM_CONF=$1/slurm.conf
    export SLURM_CONF
    PATH=$PATH:/usr/sbin:/sbin
    slurmctld -D >"$1/slurmctld.log" 2>&1 &
    slurm_daemons="$slurm_daemons $!"
    slurmd -D >"$1/slurmd.log" 2>&1 &
    slurm_daemons="$slurm_daemons $!"
    for _ in $(seq 100); do
        [ "$(timeout 5 sinfo -h -o %T 2>/dev/null)" != idle ] || return 0
        sleep 0.1
    done
    tail -n 5 "$1/slurmctld.log" "$1/slurmd.log"
    return 1
}

# Waits until no job is queued or runs, not longer than 30 s.
await_slurm()
{
    for _ in $(seq 300); do
        [ -n "$(timeout 5 squeue -h 2>&1)" ] || return 0
        sleep 0.1
    done
    timeout 5 squeue
    return 1
}

stop_slurm()
{
    [ -n "$slurm_daemons" ] || return 0
    timeout 5 scancel --quiet --user "$(id -un)" 2>/dev/null
    # shellcheck disable=SC2086 # a list
    kill $slurm_daemons 2>/dev/null
    for _ in $(seq 50); do
        # shellcheck disable=SC2086
        kill -0 $slurm_daemons 2>/dev/null || break
        sleep 0.1
    done
    # shellcheck disable=SC2086
    kill -9 $slurm_daemons 2>/dev/null
    slurm_daemons=
}
