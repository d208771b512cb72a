#!/usr/bin/env python3
"""tools/prepare: what it makes of text, and what it refuses. Skipped where tokenizers cannot be had.

Usage: prepare_test.py
"""

import ast
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PREPARE = Path(__file__).resolve().parents[3] / "tools" / "prepare"
SKIPPED = 77  # CTest's SKIP_RETURN_CODE
REVIEWS = [("很好看的书，值得买。", "pos"), ("质量太差，不要买！", "neg"), ("A good book", "pos"),
           ("bad, bad paper", "neg"), ("内容一般", "neg"), ("非常喜欢", "pos")] * 5


def load(path):
    """An .npy file as (shape, flat values)."""
    data = path.read_bytes()
    size = int.from_bytes(data[8:10], "little")
    header = ast.literal_eval(data[10:10 + size].decode())
    types = {"<u2": "H", "<i4": "i", "|u1": "B"}
    return header["shape"], memoryview(data[10 + size:]).cast(types[header["descr"]]).tolist()


class Prepare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)

    def file(self, name, text):
        path = self.dir / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    def run_it(self, *args, code=0):
        run = subprocess.run([str(PREPARE), *args, f"--out={self.dir}/out"], capture_output=True,
                             text=True, timeout=60, check=False)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        return run.stderr if code else run.stdout

    def reviews(self):
        return self.file("r.csv", "review,stars\n" + "".join(f'"{t}",{s}\n' for t, s in REVIEWS))

    def test_a_row_is_its_text_between_the_special_tokens(self):
        self.run_it("--for=bert", "--text=review", "--label=stars", "--length=12",
                    "--vocabulary=400", "--eval-share=0", self.reviews())
        out = self.dir / "out"
        words = json.loads((out / "tokenizer.json").read_text())["model"]["vocab"]
        shape, tokens = load(out / "train.tokens.npy")
        _, lengths = load(out / "train.lengths.npy")
        _, labels = load(out / "train.labels.npy")
        self.assertEqual(shape, (len(REVIEWS), 12))
        self.assertEqual(labels, [int(stars == "pos") for _, stars in REVIEWS])  # in order of name
        for i, (text, _) in enumerate(REVIEWS):
            row = tokens[12 * i:12 * i + 12]
            self.assertEqual(row[0], words["[CLS]"])
            self.assertEqual(row[lengths[i] - 1], words["[SEP]"])
            self.assertEqual(row[lengths[i]:], [words["[PAD]"]] * (12 - lengths[i]))
            if "\u4e00" <= text[0] <= "\u9fff":  # by character
                self.assertEqual(row[1:lengths[i] - 1], [words[c] for c in text[:lengths[i] - 2]])
        self.assertEqual(json.loads((out / "data.json").read_text())["classes"], ["neg", "pos"])
        self.assertIn("classes: 2", (out / "data.txtpb").read_text())
        self.assertNotIn("masked", (out / "data.txtpb").read_text())

    def test_equal_texts_are_on_one_side_and_no_document_is_lost(self):
        text = self.file("a.txt", "".join(f"line {i % 40}\n" for i in range(200)))
        self.run_it("--for=bert", "--eval-share=0.3", "--vocabulary=400", "--length=16", text)
        sides = []
        for side in ("train", "eval"):
            (rows, width), tokens = load(self.dir / f"out/{side}.tokens.npy")
            sides.append([tuple(tokens[width * i:width * i + width]) for i in range(rows)])
        self.assertEqual(len(sides[0]) + len(sides[1]), 200)
        words = json.loads((self.dir / "out/tokenizer.json").read_text())["model"]["vocab"]
        special = ", ".join(str(words[word]) for word in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))
        self.assertEqual((self.dir / "out/data.txtpb").read_text().count(
            f"masked {{ mask_token: {words['[MASK]']} special_token: [{special}] }} }} }}"), 2)
        self.assertFalse(set(sides[0]) & set(sides[1]))

    def test_pairs_have_segments_and_the_longer_text_is_cut(self):
        rows = [{"text": "a b c d e f g h", "b": "x y"}, {"text": "a b", "b": "x y z"}]
        text = self.file("p.jsonl", "\n".join(map(json.dumps, rows)))
        self.run_it("--for=bert", "--pair=b", "--eval-share=0", "--length=9", "--vocabulary=400", text)
        _, segments = load(self.dir / "out/train.segments.npy")
        _, lengths = load(self.dir / "out/train.lengths.npy")
        self.assertEqual(lengths, [9, 8])  # [CLS] a b c d [SEP] x y [SEP]
        self.assertEqual(segments[:9], [0] * 6 + [1] * 3)
        self.assertEqual(segments[9:18], [0] * 4 + [1] * 4 + [0])

    def test_a_stream_says_the_text_again(self):
        text = "In the beginning God created the heaven and the earth. 起初\n" * 20
        self.run_it("--for=gpt", "--eval-share=0", "--vocabulary=400", self.file("b.txt", text))
        _, stream = load(self.dir / "out/train.stream.npy")
        words = json.loads((self.dir / "out/tokenizer.json").read_text())["model"]["vocab"]
        self.assertEqual(stream[-1], words["<|endoftext|>"])
        spelled = {i: word for word, i in words.items()}
        letters = "".join(spelled[i] for i in stream[:-1])
        self.assertEqual(len(letters), len(text.encode()))  # a letter stands for a byte
        self.assertTrue(letters.startswith("InĠtheĠbeginning"))

    def test_equal_texts_make_an_equal_vocabulary(self):
        text = self.file("a.txt", "abcdefghij klmnopqrst uvwxyz, ABCDEF: GHIJKL 很好看的书\n" * 20)
        made = []
        for _ in range(2):
            self.run_it("--for=bert", "--eval-share=0", "--vocabulary=400", text)
            made.append((self.dir / "out/tokenizer.json").read_text())
        self.assertEqual(*made)
        self.assertIn('"abcdefghij"', made[0])

    def test_a_tokenizer_is_taken_as_it_is(self):
        self.run_it("--for=bert", "--text=review", "--vocabulary=400", self.reviews())
        saved = (self.dir / "out/tokenizer.json").read_text()
        given = self.file("given.json", saved)
        self.run_it("--for=bert", "--text=review", f"--tokenizer={given}", self.reviews())
        self.assertEqual((self.dir / "out/tokenizer.json").read_text(), saved)

    def test_what_a_tokenizer_pads_and_cuts_is_not_padded_and_cut(self):
        self.run_it("--for=bert", "--text=review", "--vocabulary=400", self.reviews())
        lengths = load(self.dir / "out/train.lengths.npy")
        saved = json.loads((self.dir / "out/tokenizer.json").read_text())
        saved["padding"] = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None,
                            "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
        saved["truncation"] = {"max_length": 3, "strategy": "LongestFirst", "stride": 0,
                               "direction": "Right"}
        given = self.file("given.json", json.dumps(saved))
        self.run_it("--for=bert", "--text=review", f"--tokenizer={given}", self.reviews())
        self.assertEqual(load(self.dir / "out/train.lengths.npy"), lengths)

    def test_refusals_name_file_line_and_value(self):
        for code, says, args in [
                (65, "x.txt' line 2: byte 0xff is no UTF-8", [self.file("x.txt", b"ok\n\xff\n")]),
                (65, "line 2: no text", [self.file("e.txt", "a\n  \nb\n")]),
                (65, "no column 'review'; the columns are a, b", [
                    "--text=review", self.file("c.csv", "a,b\n1,2\n")]),
                (65, "line 1: no JSON", [self.file("j.jsonl", "{")]),
                (65, "line 1: expected an object", [self.file("k.jsonl", "[1]")]),
                (65, "has no [PAD]", [f"--tokenizer={self.file('vocab.txt', 'a')}",
                                      self.file("t.txt", "a")]),
                (74, "cannot read", [str(self.dir / "none.txt")]),
                (64, "has no columns", ["--label=a", self.file("t2.txt", "a")]),
                (65, "no value in column 'b'", ["--text=a", "--label=b",
                                                self.file("d.csv", "a,b\n1\n")]),
                (64, "--eval-share is 1.0", ["--eval-share=1", self.file("t3.txt", "a")]),
        ]:
            with self.subTest(says):
                self.assertIn(says, self.run_it("--for=bert", *args, code=code))
                self.assertFalse((self.dir / "out/train.tokens.npy").exists())


    def test_a_command_line_that_is_none_is_64(self):
        for words in ([], ["--for=bert"], ["--for=cnn", "--out=x", "y"], ["--for=bert", "--no", "y"]):
            run = subprocess.run([str(PREPARE), *words], capture_output=True, text=True, check=False)
            self.assertEqual(run.returncode, 64, run.stderr)
            self.assertTrue(run.stderr.startswith("tools/prepare: "), run.stderr)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as probe:
        (Path(probe) / "a.txt").write_text("a\nb\n")
        ready = subprocess.run([str(PREPARE), "--for=bert", f"--out={probe}/out", "--eval-share=0",
                                f"{probe}/a.txt"], capture_output=True, text=True, check=False)
    if ready.returncode == 69:  # the virtual environment could not be made
        print("skipped: no tokenizers\n" + ready.stderr[-500:])
        sys.exit(SKIPPED)
    unittest.main()
