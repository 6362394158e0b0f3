"""Texts as tokens: nothing lost, nothing in both parts, unseen characters counted."""

from pathlib import Path

import numpy as np
import pytest

from tfjax.train import load_shakespeare, load_text
from tfjax.train._data import find_data


HAMLET = Path(__file__).parents[1] / "reference" / "hamlet.txt"


def test_the_parts_of_a_file_are_the_file():
    content = HAMLET.read_text(encoding="ascii")
    text = load_text(HAMLET, validation=0.1)
    assert text.decode(text.train) + text.decode(text.validation) == content
    assert len(text.validation) == round(0.1 * len(content))
    assert text.alphabet == "".join(sorted(set(text.decode(text.train))))
    assert text.train.dtype == text.validation.dtype == np.uint8
    assert text.names == ("hamlet.txt",)
    assert text.unknown == 0
    line = "To be, or not to be,--that is the question:--"
    assert text.decode(text.encode(line)) == line
    assert line in content


def test_every_file_of_a_folder_is_cut_at_its_own_end(tmp_path):
    (tmp_path / "b.txt").write_text("0123456789")
    (tmp_path / "a.txt").write_text("abcdefghijklmnopqrst0123456789")
    (tmp_path / "c.md").write_text("none of these")
    text = load_text(tmp_path, validation=0.2)
    assert text.names == ("a.txt", "b.txt")
    assert text.decode(text.train) == "abcdefghijklmnopqrst0123" + "01234567"
    # 8 and 9 are in the validation part alone: one symbol stands for both.
    assert text.decode(text.validation) == "4567\ufffd\ufffd" + "\ufffd\ufffd"
    assert text.unknown == 4


def test_characters_that_training_never_saw_stay_in_the_validation_part(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("abcabcabcabcabcabé€c", encoding="utf-8")
    text = load_text(file, validation=0.2)
    assert text.alphabet == "abc\ufffd"
    assert text.decode(text.validation) == "b\ufffd\ufffdc"
    assert text.unknown == 2
    with pytest.raises(ValueError, match=r"characters of the alphabet only, .*\['é'\]"):
        text.encode("cé")


def test_many_characters_take_wider_tokens(tmp_path):
    file = tmp_path / "text.txt"
    content = "".join(map(chr, range(0x4E00, 0x4E00 + 400))) + "\U0001f600" * 100
    file.write_text(content, encoding="utf-8")
    text = load_text(file)
    assert text.train.dtype == np.int32
    assert len(text.alphabet) == 401
    assert text.decode(text.train) + text.decode(text.validation) == content
    with pytest.raises(ValueError, match=r"`tokens` must be in 0\.\.400, but was in 7"):
        text.decode(np.array([7, 401]))
    with pytest.raises(ValueError, match=r"but was in -1\.\.0"):
        text.decode(np.array([-1, 0]))
    assert text.decode(text.encode("")) == ""


def test_ends_of_lines_and_byte_order_marks_are_those_of_the_platform(tmp_path):
    file = tmp_path / "text.txt"
    file.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    text = load_text(file)
    assert text.decode(text.train) + text.decode(text.validation) == "one\ntwo\n"


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, FileNotFoundError, r"`path` must name a file, but was .*text\.txt"),
        (b"", ValueError, r"`path` must name a text, but was .*which is empty"),
        (b"ab", ValueError, r"`text\.txt` must be long enough to .*2 characters long"),
        (b"ab\xff", ValueError, r"UTF-8, but was .*, which is none from byte 2 on"),
    ],
)
def test_a_text_that_is_none_is_refused(tmp_path, content, error, message):
    if content is not None:
        (tmp_path / "text.txt").write_bytes(content)
    with pytest.raises(error, match=message):
        load_text(tmp_path / "text.txt")


def test_bad_arguments_are_refused(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"must have files \*\.txt, but was the"
    ):
        load_text(tmp_path)
    for validation in (0.0, 1.0, float("nan")):
        with pytest.raises(ValueError, match="`validation` must be a share between"):
            load_text(HAMLET, validation=validation)
    with pytest.raises(
        FileNotFoundError, match=r"alls_well.*\.txt, where there is none"
    ):
        load_shakespeare(tmp_path)


@pytest.mark.data
def test_the_plays_are_whole_and_clean():
    try:
        folder = find_data("shakespeare")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    text = load_shakespeare()
    assert len(text.names) == 37
    assert (len(text.train), len(text.validation)) == (4_365_269, 485_030)
    assert (len(text.alphabet), text.unknown) == (82, 0)
    everything = text.decode(text.train) + text.decode(text.validation)
    foreign = ("gutenberg", " etext", "copyright", "<<", "www", "@", "carnegie")
    assert [word for word in foreign if word in everything.lower()] == []
    assert (folder / "hamlet.txt").read_bytes() == HAMLET.read_bytes()
    # By position: every play begins in the training part and ends in the other.
    for play in ("hamlet", "winters_tale"):
        content = (folder / f"{play}.txt").read_text()
        assert content[:2000] in text.decode(text.train)
        assert content[-2000:] in text.decode(text.validation)
