"""Files of records: what was written is read, what was torn at the end is not there, and all else is refused."""

import errno
import json
import os
from hashlib import blake2b

import pytest

from suffice import JournalError, files
from suffice.journal.lines import PREFIX, Lines, line_of

RECORDS = [{"kind": "header"}, {"n": 1, "values": [0.1, -0.0, 1e300]}, {"n": 2, "text": "\u00e9\n"}]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


def written(path):
    lines = Lines(path)
    lines.replace(RECORDS[:1])
    for record in RECORDS[1:]:
        lines.append(record)
    lines.close()
    return path.read_bytes()


def read(path, to_change=False):
    found, lines = [], Lines(path)
    lines.open(lambda record, _: found.append(record), to_change=to_change)
    if not to_change:
        lines.close()
    return found, lines


def digest_of(before, text):
    return blake2b(before + text, digest_size=8).hexdigest().encode("ascii")


def text_of(record):
    return json.dumps(record, separators=(",", ":")).encode("ascii")


def test_a_line_is_digest_length_and_text_and_each_digest_holds_all_before_it(path):
    digest = b""
    for line, record in zip(written(path).splitlines(), RECORDS, strict=True):
        digest = digest_of(digest, text_of(record))
        assert line == b"%s %012d %s" % (digest, len(text_of(record)), text_of(record))
        assert line[PREFIX:] == text_of(record)


def test_records_come_back_and_so_does_where_they_end(path):
    content = written(path)
    found, lines = read(path)
    assert found == RECORDS and (lines.end, lines.torn) == (len(content), 0)
    assert lines.began == content[:16] and lines.digest == content.splitlines()[-1][:16]


def test_a_record_is_found_again_by_where_it_begins(path):
    written(path)
    places, lines = [], Lines(path)
    lines.open(lambda _, offset: places.append(offset), to_change=False)
    assert [lines.record_at(offset) for offset in reversed(places)] == RECORDS[::-1] == list(lines.records())[::-1]
    lines.close()


def test_whatever_is_cut_off_the_records_before_it_are_read_and_writing_goes_on_after_them(path):
    content = written(path)
    ends = [0, *(k + 1 for k, byte in enumerate(content) if byte == ord("\n"))]
    for size in range(len(content)):
        path.write_bytes(content[:size])
        good = sum(end <= size for end in ends) - 1
        found, lines = read(path, to_change=True)
        assert found == RECORDS[:good] and lines.torn == size - ends[good]
        assert path.read_bytes() == content[:size]  # nothing is changed before something is written
        for record in RECORDS[good:]:
            lines.append(record)
        lines.close()
        assert path.read_bytes() == content


def test_any_other_change_of_a_byte_is_refused_or_leaves_the_records_before_it(path):
    content = written(path)
    last = content.rindex(b"\n", 0, -1)  # without this line's end, too, what follows may be one that was cut short
    for k in range(len(content)):
        path.write_bytes(content[:k] + bytes([content[k] ^ 1]) + content[k + 1 :])
        if k < last:
            with pytest.raises(JournalError, match="damaged"):
                read(path)
        else:
            assert read(path)[0] == RECORDS[: content.count(b"\n", 0, k)]


def test_a_write_that_fails_leaves_the_file_as_it_was(path, monkeypatch):
    content, write = written(path), files.write
    lines = read(path, to_change=True)[1]

    def fail(file, data):
        write(file, data[:10])
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch, pytest.raises(JournalError, match="full"):
        patch.setattr(files, "write", fail)
        lines.append({"n": 3})
    assert path.read_bytes() == content
    lines.append({"n": 3})
    lines.close()
    assert read(path)[0] == [*RECORDS, {"n": 3}]


def test_a_replacement_that_fails_leaves_the_old_file_open(path, monkeypatch):
    content = written(path)
    lines = read(path, to_change=True)[1]
    with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        lines.replace(RECORDS[:1])
    assert path.read_bytes() == content
    lines.append({"n": 3})
    lines.close()
    assert read(path)[0] == [*RECORDS, {"n": 3}]


def test_what_makes_no_sense_is_the_journal_s_fault_and_told_briefly(path):
    written(path)

    def refuse(record, offset):
        raise KeyError("x" * 10_000)

    with pytest.raises(JournalError, match="cannot be understood at byte 0") as told:
        Lines(path).open(refuse, to_change=False)
    assert len(str(told.value)) < 500 + len(str(path))


def test_nothing_is_written_to_a_file_that_is_not_open(path):
    with pytest.raises(JournalError, match="not open"):
        Lines(path).append({})


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_has_not_are_refused(path, number):
    text = b'{"n":%s}' % number.encode("ascii")
    path.write_bytes(b"%s %012d %s\n" % (digest_of(b"", text), len(text), text))
    with pytest.raises(JournalError, match="is not JSON"):
        read(path)
    with pytest.raises(ValueError, match="JSON"):
        line_of({"n": float(number.replace("Infinity", "inf"))}, b"")
