# SPDX-License-Identifier: GPL-2.0-or-later
"""Messages of the control protocol. Made by scripts/make_protocol.py from the engine's own types: do not edit."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, Union

PROTOCOL = 4
"""Version of the protocol."""


class _AnswerTimeKeys(TypedDict):
    why: Pause
    """Why it stands still."""


class AnswerTime(_AnswerTimeKeys, total=False):

    ended: Ended | None
    """Why the run cannot go on, if so."""


class AnswerStarted(TypedDict):

    pid: int
    """Process id in the node."""
    program: int
    """Its number on this connection."""


class AnswerSeries(TypedDict):

    bytes: int
    """Length of the file, all of it whole lines, bytes."""
    complete_ns: int
    """Virtual time of its last sample, or at which it began, nanoseconds: it holds all that was measured until
    then."""
    file: str
    """Name of its file in the output folder."""


class _AnswerKeys(TypedDict):
    at_ns: int
    """Virtual time at which it took effect, ns; for those that let time go on, where it stands now."""
    id: int
    """The command's number."""


class Answer(_AnswerKeys, total=False):
    """What came of a command."""

    done: dict[str, Any]
    time: AnswerTime
    started: AnswerStarted
    processes: list[Process]
    links: list[LinkSummary]
    sample: Sample
    series: AnswerSeries
    nodes: list[NodePower]
    file: Content
    refused: Refusal


class Break(TypedDict):
    """Where a run shall hold: as soon as a condition begins to hold for a TCP connection."""

    condition: str
    """The condition: columns of tcp.csv, or `cwnd`, `ssthresh`, `in_flight` (in bytes), `mss`, `srtt`, `rto` and
    the like, in arithmetic and comparisons, as in `cwnd < 2*mss`."""
    interval_ns: int
    """How often connections are looked at, ns of virtual time."""


class Broken(TypedDict):
    """A condition holds; time stands still."""

    at_ns: int
    """Where time stands, ns."""
    connection: dict[str, Any]
    """The connection, as a row of tcp.csv."""


class Content(TypedDict, total=False):
    """What is in a file."""

    text: str
    hex: str


class DirectionState(TypedDict):
    """One direction of a link, as it is now."""

    delay_ns: int
    """Its delay, ns."""
    queue_bytes: int
    """Their bytes."""
    queue_frames: int
    """Frames in its queue; none where frames wait in the sender."""
    rate_bps: int
    """Its rate, bit/s, with preamble, FCS and gap between frames."""
    up: bool
    """Whether it has a carrier."""
    wait_ns: int
    """How long a frame offered now would wait for the wire, ns."""


class DirectionSummary(TypedDict):
    """One direction of a link. Bytes are of frames from the Ethernet header on, without FCS, preamble and gap.
    `offered = delivered - duplicated + dropped + in flight at the end`."""

    bytes: int
    """Bytes of those frames."""
    corrupted_frames: int
    """Frames in which the link flipped a bit."""
    delivered_bytes: int
    """Bytes of those frames."""
    delivered_frames: int
    """Frames that reached the receiver, copies included."""
    drops: dict[str, int]
    """Frames lost, by cause ("loss", "queue_full", "link_down", ...); causes that did not occur are absent."""
    duplicated_frames: int
    """Extra copies the link made."""
    frames: int
    """Frames the sender handed to the link."""


class End(TypedDict, total=False):
    """How a program ended: one of the two is there."""

    exit: int | None
    """Exit code."""
    signal: int | None
    """Number of the signal that ended it."""


class Hello(TypedDict):
    """Which run this is."""

    nodes: list[str]
    """Names of the nodes."""
    out: str
    """Its output folder, absolute."""
    pid: int
    """Process id of the engine."""
    protocol: int
    """`PROTOCOL`."""
    scenario: str
    """Name of the scenario."""
    version: str
    """Version of windtunnel."""


class _LatenessSummaryKeys(TypedDict):
    histogram: list[list[int]]
    """Pairs of a lateness, ns, and of how many windows were that late at most, and later than the pair before
    says."""
    late_windows: int
    """Those of them that were late."""
    limit_ns: int
    """Beyond this a window is late, ns."""
    max_ns: int
    """The latest one, ns."""
    nodes: list[NodeLateness]
    """The same by node."""
    p50_ns: int
    """Half of the windows were not later than this, ns."""
    p99_ns: int
    """99 of 100 were not, ns."""
    slipped_ns: int
    """By how much it is behind the wall clock through that, ns."""
    slips: int
    """How often the run was so late that it gave up catching up."""
    windows: int
    """Windows, for each node."""


class LatenessSummary(_LatenessSummaryKeys, total=False):
    """How late events began, by the host's clock. A window counts once for each node that has something to do in
    it."""

    preempted_by_wall_clock: int
    """How often programs that computed made way by the wall clock."""


class LinkState(TypedDict):
    """A link."""

    a: str
    """First endpoint, "node:interface"."""
    a_to_b: DirectionSummary
    """Frames `a` sent."""
    a_to_b_now: DirectionState
    """From `a` to `b`, now."""
    b: str
    """Second endpoint, "node:interface"."""
    b_to_a: DirectionSummary
    """Frames `b` sent."""
    b_to_a_now: DirectionState
    """From `b` to `a`, now."""


class LinkSummary(TypedDict):
    """One link: both directions."""

    a: str
    """First endpoint, "node:interface"."""
    a_to_b: DirectionSummary
    """Frames `a` sent."""
    b: str
    """Second endpoint, "node:interface"."""
    b_to_a: DirectionSummary
    """Frames `b` sent."""


class Look(TypedDict, total=False):
    """What somebody wants to see."""

    tcp: bool
    """Whether to list TCP connections."""


class _NodeLatenessKeys(TypedDict):
    late_windows: int
    """As there."""
    max_ns: int
    """As there, ns."""
    node: str
    """Its name."""
    p50_ns: int
    """As there, ns."""
    p99_ns: int
    """As there, ns."""
    windows: int
    """As in `LatenessSummary`."""


class NodeLateness(_NodeLatenessKeys, total=False):
    """How late a node was."""

    preempted_by_wall_clock: int
    """How often its programs did."""


class NodePower(TypedDict):
    """How a node is."""

    life: int
    """Which boot this is, or was the last, from 1."""
    node: str
    """Its name."""
    ready: bool
    """Whether it is up and its set-up commands are over."""
    up: bool
    """Whether it has power."""


class NodeState(TypedDict):
    """A node."""

    ended: int
    """Programs of the scenario and of visitors that have ended."""
    node: str
    """Its name."""
    programs: list[ProgramState]
    """Those that run."""
    syscalls: int
    """System calls of its programs so far."""


class NumberedStart(TypedDict):

    node: str
    """On which node."""
    program: Open
    """What."""


class NumberedEndInput(TypedDict):

    program: int
    """Its number, from `Outcome::Started`."""


class NumberedResize(TypedDict):

    program: int
    """Its number."""
    size: WindowSize
    """The size."""


class NumberedHangUp(TypedDict):

    program: int
    """Its number."""


class NumberedSignal(TypedDict):

    node: str
    """On which node."""
    pid: int
    """Process id there, as of kill(2): a process, or a process group if negative. Neither process 1 nor all
    (-1)."""
    signal: int
    """Number of the signal, 1 to 64; 0 only asks whether it could be sent."""


class NumberedProcesses(TypedDict, total=False):

    node: str | None
    """Which node; none: all."""


class NumberedLink(TypedDict):

    change: dict[str, Any]
    """As an entry of the scenario's `events` without `at`: `{"link": ["h1", "h2"], "set": {"delay": "5ms"}}`."""


class NumberedPower(TypedDict):

    node: str
    """Which node."""
    up: bool
    """Whether it has power from now on."""


class _NumberedSampleKeys(TypedDict):
    what: Sampled
    """Of what."""


class NumberedSample(_NumberedSampleKeys, total=False):

    node: str | None
    """Of which node; none: of all, in the scenario's order."""
    skip: int
    """So many rows are left out at the start: those that an answer before had."""


class NumberedSeries(TypedDict):

    series: Measured
    """Which."""


class NumberedMeasure(TypedDict):

    interval_ns: int
    """Every so much virtual time, nanoseconds; at least `INTERVAL_MIN_NS`."""
    series: list[Measured]
    """What."""


class NumberedReadFile(TypedDict):

    node: str
    """On which node."""
    path: str
    """Absolute path."""


class _NumberedWriteFileKeys(TypedDict):
    content: Content
    """All it holds then."""
    node: str
    """On which node."""
    path: str
    """Absolute path."""


class NumberedWriteFile(_NumberedWriteFileKeys, total=False):

    mode: int | None
    """Its mode (the lower 12 bits); none: as it is, 0644 if it is made now."""


class _NumberedKeys(TypedDict):
    id: int
    """The driver's number for it; the answer has the same."""


class Numbered(_NumberedKeys, total=False):
    """A command with its number."""

    run: Run
    step: dict[str, Any]
    pause: dict[str, Any]
    start: NumberedStart
    end_input: NumberedEndInput
    resize: NumberedResize
    hang_up: NumberedHangUp
    signal: NumberedSignal
    processes: NumberedProcesses
    link: NumberedLink
    power: NumberedPower
    nodes: dict[str, Any]
    counters: dict[str, Any]
    sample: NumberedSample
    series: NumberedSeries
    measure: NumberedMeasure
    read_file: NumberedReadFile
    write_file: NumberedWriteFile
    stop: dict[str, Any]


class _OpenKeys(TypedDict):
    argv: list[str]
    """Program and arguments; empty: the node's shell, bash or sh."""


class Open(_OpenKeys, total=False):
    """A program to start for a client."""

    cwd: str | None
    """Its working directory, an absolute path; none: `/`, and the user's home for the node's shell."""
    env: dict[str, str]
    """Environment, besides PATH, HOME and the like."""
    env_only: bool
    """Whether `env` is all of the environment, without PATH, HOME and the like."""
    terminal: WindowSize | None
    """On a terminal of this size; none: on three pipes."""
    user: str | None
    """Whom it runs as: a name in the node's /etc/passwd, a user id, or user and group id as in 1000:1000; none:
    root."""


class _PeerStateKeys(TypedDict):
    connected: bool
    """It is there and has answered."""


class PeerState(_PeerStateKeys, total=False):
    """The program at the other end of a port, by the host's clock."""

    lost_in_frames: int | None
    """Frames that it has sent and that did not arrive here."""
    lost_out_frames: int | None
    """Frames from here that did not arrive there, as it said last."""
    name: str | None
    """What it calls its port; null: it was never heard of."""
    seen_ago_ns: int | None
    """Since it was heard of last, ns."""
    version: str | None
    """Its version."""


class _PortStateKeys(TypedDict):
    bytes_in: int
    """Their bytes."""
    bytes_out: int
    """Their bytes."""
    drops: dict[str, int]
    """Frames that the port dropped, by cause; causes that did not occur are absent."""
    frames_in: int
    """Frames that came from outside."""
    frames_out: int
    """Frames that the host took."""
    name: str
    """Its name."""
    what: str
    """What it was, in a sentence; "replay": what had come from there was repeated."""


class PortState(_PortStateKeys, total=False):
    """A port to the outside."""

    peer: PeerState | None
    """What is known of the program at the other end; only of kinds where there is one that says so."""


class Process(TypedDict):
    """A process of a node."""

    command: str
    """Program and arguments; the program's short name in brackets if they are not known."""
    node: str
    """The node."""
    parent: int
    """Process id of its parent; 1: started by the scenario or a client, or an orphan."""
    pid: int
    """Process id."""
    start_ns: int
    """Virtual time at which it started, nanoseconds. Exact for programs of the scenario and of clients, else to
    10 ms."""
    state: str
    """As in `ps`: R running, S sleeping, D waiting, T stopped, Z ended and not waited for."""


class _ProgramEndKeys(TypedDict):
    program: int
    """Its number."""


class ProgramEnd(_ProgramEndKeys, total=False):
    """A program that the driver started has ended."""

    exit: int | None
    """Exit code."""
    signal: int | None
    """Number of the signal that ended it."""


class ProgramState(TypedDict):
    """A program that runs."""

    command: list[str]
    """Program and arguments."""
    pid: int
    """Process id in the node."""
    start_ns: int
    """Virtual time of its start, ns."""


class _RefusalKeys(TypedDict):
    exit_code: int
    """Exit code for the client, as shells have it: 127 not found, 126 not executable, 2 anything else."""
    message: str
    """What is wrong."""


class Refusal(_RefusalKeys, total=False):
    """Why something cannot be done."""

    hint: str | None
    """What to do about it."""


class Run(TypedDict, total=False):
    """How far time goes on. The first thing that holds ends it; with none of them it goes on to the end of the
    run."""

    output: list[int]
    """Until one of these programs has printed something, by their numbers; what it printed after the last answer
    to a `run` or `step` counts, and so does its end."""
    programs: list[int]
    """Until all of these programs have ended, by their numbers."""
    until_ns: int | None
    """Up to this virtual time, nanoseconds; what is due then has not happened yet."""


class Sample(TypedDict):
    """A table, or a part of it that an answer has room for."""

    columns: list[str]
    """Names of the columns, as in the file of results."""
    rows: list[list[Any]]
    """A value per column in each; null where there is none."""
    rows_total: int
    """Rows of the whole table. If there are more than in the answers so far, `skip` asks for the rest."""


class _StateKeys(TypedDict):
    at_ns: int
    """Virtual time up to which everything has happened, ns."""
    links: list[LinkState]
    """All links, in the scenario's order and those to ports last."""
    nodes: list[NodeState]
    """All nodes, in the scenario's order."""
    stop_ns: int
    """Virtual time at which the run stops on its own, ns."""


class State(_StateKeys, total=False):
    """How a run stands between two of its windows."""

    held: Ended | None
    """Why the run has come to its end, if it is only held for its visitors."""
    lateness: LatenessSummary | None
    """How late it has been so far, as in the summary; only if it goes with the wall clock."""
    ports: list[PortState]
    """Ports to the outside, in the scenario's order; only if there are any."""
    tcp: list[dict[str, Any]]
    """TCP connections of all nodes, a row each with the columns of tcp.csv; empty unless asked for."""


class WindowSize(TypedDict):
    """Size of a terminal's window, characters."""

    columns: int
    """Characters in a line."""
    rows: int
    """Lines."""


Ended = Literal["stop", "all_done", "driver", "interrupted", "crash", "error"]
"""Why a run ended."""


Measured = Literal["links", "tcp", "mptcp", "qdiscs"]
"""What can be measured at intervals."""


Pause = Literal["until", "programs", "output", "window", "paused", "end"]
"""Why time stands still again."""


class ReplyObjectStarted(TypedDict):

    pid: int
    """Process id in the node."""


class ReplyObjectDriving(TypedDict):

    at_ns: int
    """Where time stands, ns."""


class ReplyObject(TypedDict, total=False):
    """What a run says."""

    hello: Hello
    started: ReplyObjectStarted
    ended: End
    processes: list[Process]
    state: State
    broken: Broken
    refused: Refusal
    driving: ReplyObjectDriving
    answer: Answer
    program_ended: ProgramEnd


Reply = Union[ReplyObject, Literal["watching", "run_over"]]
"""What a run says."""


class RequestObjectOpen(TypedDict):

    node: str
    """On which node."""
    program: Open
    """What."""


class _RequestObjectSignalKeys(TypedDict):
    signal: int
    """Its number, from 1 to 64."""


class RequestObjectSignal(_RequestObjectSignalKeys, total=False):

    group: bool
    """To its process group, as a terminal does, and not to the program alone."""


class RequestObjectProcesses(TypedDict, total=False):

    node: str | None
    """Which node; none: all."""


class RequestObject(TypedDict, total=False):
    """What a client asks for."""

    open: RequestObjectOpen
    resize: WindowSize
    signal: RequestObjectSignal
    processes: RequestObjectProcesses
    look: Look
    break_when: Break
    command: Numbered


Request = Union[RequestObject, Literal["end_input", "go_on", "stop", "drive"]]
"""What a client asks for."""


Sampled = Literal["tcp", "mptcp", "qdiscs"]
"""What kernels can be asked for."""
