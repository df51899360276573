"""The screen as text: what is shown, as lines of styled pieces. Knows nothing of terminals, so it is easy to test."""

from collections import Counter
from dataclasses import dataclass

from voiceseq.apps.listen.app import SILENT_DB, Listening, clock
from voiceseq.apps.listen.session import Row

Piece = tuple[str, str]  # text, style: plain, dim, strong, good, bad
Line = list[Piece]
FRAMES = 4  # of scores in a column of the trace: with 30 ms frames, eight columns a second
LABEL = 26  # columns left of a trace
LEVEL_DB = 60.0  # the range of the level meter
HEAD, MOST_TRACE, FEWEST_DETECTIONS = 4, 8, 3
KEYS = "[f] false alarm  [m] missed  [+/-] threshold  [tab] word  [space] pause  [q] quit"


@dataclass(frozen=True)
class Glyphs:
    bars: str  # empty to full, nine steps
    line: str
    mark: str
    selected: str


FINE = Glyphs(bars=" ▁▂▃▄▅▆▇█", line="─", mark="▼", selected="▶")
PLAIN = Glyphs(bars=" ..::||##", line="-", mark="v", selected=">")


def draw(app: Listening, width: int, height: int, glyphs: Glyphs = FINE) -> list[Line]:
    """At most ``height`` lines of at most ``width`` columns."""
    rows = shown_rows(app, height)
    tall = trace_height(len(rows), height)
    lines = [*head(app, width, glyphs), []]
    for row in rows:
        lines += trace(row, row is app.session.rows[app.selected], width, tall, glyphs)
    lines += [[], *detections(app, height - len(lines) - 2)]
    lines = lines[: height - 1]
    lines += [[]] * (height - 1 - len(lines)) + [[(KEYS, "dim")]]
    return [cut(line, width) for line in lines]


def head(app: Listening, width: int, glyphs: Glyphs) -> list[Line]:
    microphone = app.microphone
    name = microphone.info.full_name if microphone.info else "no microphone"
    title = f"voiceseq listen   {name}, {microphone.sample_rate} Hz"
    figures = [f"cpu {app.processor.share:.0%} of a core", f"lost {microphone.lost_s:.1f} s"]
    figures += [f"overruns {microphone.overruns}"] if microphone.overruns else []
    figures += [f"saved {app.saver.count} in {app.saver.folder}/"]
    if microphone.trouble:
        state: Piece = (microphone.trouble, "bad")
    else:
        state = (app.message or ("paused" if app.paused else ""), "strong")
    return [
        spread(title, clock(app.session.time), width),
        meter(app, width, glyphs),
        [("   ".join(figures), "dim")],
        [state],
    ]


def meter(app: Listening, width: int, glyphs: Glyphs) -> Line:
    """The level of the last block as a bar, the recent peak in figures."""
    room = max(10, min(width - 24, 60))
    filled = round(room * min(1.0, max(0.0, 1 + app.level_db / LEVEL_DB)))
    style = "bad" if app.peak_db > -1 else "good"
    figure = f" {app.peak_db:4.0f} dB" if app.peak_db > SILENT_DB else "  silent"
    clipped = "  clipping" if app.peak_db > -1 else ""
    return [
        ("level ", "plain"),
        (glyphs.bars[-1] * filled, style),
        (glyphs.line * (room - filled), "dim"),
        (figure + clipped, style),
    ]


def shown_rows(app: Listening, height: int) -> list[Row]:
    """The words there is room for, the selected one among them."""
    rows = app.session.rows
    room = max(1, height - HEAD - FEWEST_DETECTIONS - 3)
    first = max(0, min(app.selected - room // 2, len(rows) - room))
    return rows[first : first + room]


def trace_height(rows: int, height: int) -> int:
    room = height - HEAD - FEWEST_DETECTIONS - 3
    return max(1, min(MOST_TRACE, room // rows))


def trace(row: Row, selected: bool, width: int, tall: int, glyphs: Glyphs) -> list[Line]:
    """The newest probabilities at the right; the threshold as a line where the bars do not reach it."""
    columns = recent(row, max(1, width - LABEL - 1))
    marks = {frame // FRAMES for frame in row.detected}
    newest = (row.frames - 1) // FRAMES
    level = min(tall - 1, int(row.threshold * tall))  # the text row, from below, that the threshold is in
    now = row.history[-1] if row.history else 0.0
    labels = [
        f"{glyphs.selected if selected else ' '} {row.word[:15]:15} {now:6.3f}",
        f"{'threshold':>17} {row.threshold:6.3f}",
    ]
    lines = []
    for up in reversed(range(tall)):
        text = labels.pop(0) if labels else ""
        line: Line = [(text.ljust(LABEL), "strong" if selected else "plain")]
        for place, value in enumerate(columns):
            number = newest - len(columns) + 1 + place
            line.append(cell(value, up, tall, level, row.threshold, number in marks, glyphs))
        lines.append(line)
    if tall == 1:
        lines[0][0] = (
            f"{glyphs.selected if selected else ' '} {row.word[:11]:11} {now:4.2f}/{row.threshold:5.3f}".ljust(LABEL),
            lines[0][0][1],
        )
    return lines


def cell(value: float, up: int, tall: int, level: int, threshold: float, marked: bool, glyphs: Glyphs) -> Piece:
    style = "good" if value >= threshold else "plain"
    if marked and up == tall - 1:
        return glyphs.mark, "bad"
    eighths = min(8, max(0, round((value * tall - up) * 8)))
    if eighths == 0 and up == level:
        return glyphs.line, "dim"
    return glyphs.bars[eighths], style


def recent(row: Row, count: int) -> list[float]:
    """The highest probability of each of the last ``count`` columns; a column keeps its frames while it moves."""
    columns: Counter[int] = Counter()
    first = row.frames - len(row.history)
    newest = (row.frames - 1) // FRAMES
    start = max(first, (newest - count + 1) * FRAMES)
    values = list(row.history)[start - first :]
    for frame, value in enumerate(values, start):
        columns[frame // FRAMES] = max(columns[frame // FRAMES], value)
    return [columns[number] for number in range(newest - count + 1, newest + 1)]


def detections(app: Listening, room: int) -> list[Line]:
    lines: list[Line] = [[(f"detections {len(app.session.detections)}", "dim")]]
    for one in list(app.session.detections)[::-1][: max(0, room)]:
        lines.append([(f"  {clock(one.time)}  ", "plain"), (f"{one.word:20}", "good"), (f" {one.score:.2f}", "plain")])
    return lines


def spread(left: str, right: str, width: int) -> Line:
    return [(left[: max(0, width - len(right) - 1)].ljust(width - len(right)), "strong"), (right, "plain")]


def cut(line: Line, width: int) -> Line:
    """The line without what is beyond ``width``, neighbours of one style joined."""
    joined: Line = []
    room = width
    for text, style in line:
        text = "".join(letter if letter.isprintable() else "?" for letter in text[:room])
        room -= len(text)
        if joined and joined[-1][1] == style:
            joined[-1] = (joined[-1][0] + text, style)
        elif text:
            joined.append((text, style))
    return joined
