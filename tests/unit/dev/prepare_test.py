#!/usr/bin/env python3
"""tools/prepare: what it makes of text, and what it refuses. Skipped where tokenizers cannot be had.

Usage: prepare_test.py
"""

import ast
import gzip
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

    def run_it(self, *args, code=0, out="out"):
        run = subprocess.run([str(PREPARE), *args, f"--out={self.dir}/{out}"], capture_output=True,
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

    def test_texts_that_differ_in_blanks_alone_are_on_one_side(self):
        text = self.file("a.jsonl", "".join(json.dumps({"text": form.format(i % 40)}) + "\n" for i in range(40)
                                            for form in ("line {}", "line {} ", "line  {}", "\r\nline\t{}")))
        self.run_it("--for=bert", "--eval-share=0.3", "--vocabulary=400", "--length=16", text)
        sides = []
        for side in ("train", "eval"):
            (rows, width), tokens = load(self.dir / f"out/{side}.tokens.npy")
            sides.append({tuple(tokens[width * i:width * i + width]) for i in range(rows)})
        self.assertEqual(len(sides[0]) + len(sides[1]), 40)

    def test_a_part_of_few_texts_is_held_out(self):
        for share in ("0.001", "0.999"):
            text = self.file("a.txt", "one\ntwo\nthree\n")
            said = self.run_it("--for=bert", f"--eval-share={share}", "--length=8", text, out=share)
            held_out = 1 if share == "0.001" else 2
            self.assertIn(f"held out: {100 * held_out / 3:.3g} % of the documents (--eval-share={share})", said)
            self.assertEqual(load(self.dir / share / "eval.tokens.npy")[0], (held_out, 8))
        said = self.run_it("--for=bert", self.file("b.txt", "one\none\n"), code=65)
        self.assertIn("expected at least 2 different texts for --eval-share=0.1, found 1", said)
        self.assertIn("held out: nothing", self.run_it("--for=bert", "--eval-share=0", f"{self.dir}/b.txt"))

    def test_the_end_of_a_single_text_is_held_out(self):
        lines = [f"the line {i}\n" for i in range(100)]
        said = self.run_it("--for=gpt", "--eval-share=0.2", "--length=64", self.file("a.txt", "".join(lines)))
        self.assertRegex(said, r"held out: [12]\d(\.\d)? % of the tokens")
        words = json.loads((self.dir / "out/tokenizer.json").read_text())["model"]["vocab"]
        spelled = {i: word for word, i in words.items()}
        sides = ["".join(spelled[i] for i in load(self.dir / f"out/{side}.stream.npy")[1][:-1])
                 .replace("Ġ", " ").replace("Ċ", "\n") for side in ("train", "eval")]
        self.assertEqual("".join(sides), "".join(lines))
        self.assertTrue(sides[1].startswith("the line 8"), sides[1])
        for code, says, args in [
                (65, "no line to cut it at", [self.file("b.txt", "a " * 999)]),
                (65, "eval: expected at least 301 tokens, for one sample of --length=300, found ",
                 ["--length=300", f"{self.dir}/a.txt"])]:
            self.assertIn(says, self.run_it("--for=gpt", *args, code=code, out="refused"))

    def test_pairs_have_segments_and_the_longer_text_is_cut(self):
        rows = [{"text": "a b c d e f g h", "b": "x y"}, {"text": "a b", "b": "x y z"}]
        text = self.file("p.jsonl", "\n".join(map(json.dumps, rows)))
        self.run_it("--for=bert", "--pair=b", "--eval-share=0", "--length=9", "--vocabulary=400", text)
        _, segments = load(self.dir / "out/train.segments.npy")
        _, lengths = load(self.dir / "out/train.lengths.npy")
        self.assertEqual(lengths, [9, 8])  # [CLS] a b c d [SEP] x y [SEP]
        self.assertEqual(segments[:9], [0] * 6 + [1] * 3)
        self.assertEqual(segments[9:18], [0] * 4 + [1] * 4 + [0])

    def test_a_pair_that_is_cut_gives_the_odd_token_to_the_longer_text(self):
        """As "longest_first" of transformers, which is 6 tokens of two texts here."""
        def rows_of(n, m):
            return {"text": " ".join("abcdefgh"[:n]), "b": " ".join("tuvwxyz"[:m])}
        expected = {(5, 6): (3, 3), (6, 2): (4, 2), (2, 7): (2, 4), (4, 3): (3, 3), (7, 1): (5, 1)}
        odd = {(5, 6): (3, 4), (6, 5): (4, 3), (6, 2): (5, 2), (3, 7): (3, 4), (7, 3): (4, 3)}
        for room, cases in ((6, expected), (7, odd)):
            text = self.file(f"{room}.jsonl", "\n".join(json.dumps(rows_of(*case)) for case in cases))
            self.run_it("--for=bert", "--pair=b", "--eval-share=0", f"--length={room + 3}",
                        "--vocabulary=400", text, out=str(room))
            (_, width), segments = load(self.dir / f"{room}/train.segments.npy")
            for i, found in enumerate(cases.values()):
                self.assertEqual(sum(segments[width * i:width * i + width]), found[1] + 1, found)

    def test_the_saved_tokenizer_has_the_special_tokens_and_the_length(self):
        self.run_it("--for=bert", "--text=review", "--vocabulary=400", "--length=12", self.reviews())
        saved = json.loads((self.dir / "out/tokenizer.json").read_text())
        self.assertEqual([next(iter(part.values()))["id"] for part in saved["post_processor"]["single"]],
                         ["[CLS]", "A", "[SEP]"])
        self.assertEqual(saved["truncation"]["max_length"], 12)

    def test_lines_end_at_line_ends_alone(self):
        inside = "a\u2028b\u2029c\x85d\x0ce\x0bf\x1cg"
        table = self.file("r.csv", "text,label\n" + f'"{inside}\r\nsecond line",x\n' + f"{inside},y\n" * 4)
        self.run_it("--for=bert", "--label=label", "--eval-share=0", "--vocabulary=400", table, out="csv")
        (records, _), _ = load(self.dir / "csv/train.tokens.npy")
        self.assertEqual(records, 5)
        self.assertEqual(json.loads((self.dir / "csv/data.json").read_text())["classes"], ["x", "y"])
        kinds = self.file("k.jsonl", "".join(f'{{"text": "a b", "label": {label}}}\n' for label in ("true", "1", "1.0", "false")))
        self.run_it("--for=bert", "--label=label", "--eval-share=0", "--vocabulary=400", kinds, out="kinds")
        self.assertEqual(json.loads((self.dir / "kinds/data.json").read_text())["classes"], ["1", "false", "true"])
        lines = self.file("r.jsonl", "".join(json.dumps({"text": inside}, ensure_ascii=False) + "\r\n"
                                             for _ in range(3)))
        self.run_it("--for=bert", "--eval-share=0", "--vocabulary=400", lines, out="jsonl")
        self.assertEqual(load(self.dir / "jsonl/train.tokens.npy")[0][0], 3)
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\x85x", "a", "\u2028", "b"]
        text = self.file("t.txt", "a b \x0cb\ra\r\nb\n")
        self.run_it("--for=bert", "--eval-share=0", "--length=8", text,
                    f"--tokenizer={self.file('vocab.txt', chr(10).join(words))}", out="text")
        (_, width), tokens = load(self.dir / "text/train.tokens.npy")
        self.assertEqual([tokens[i:i + 5] for i in range(0, len(tokens), width)],
                         [[2, 6, 8, 8, 3], [2, 6, 3, 0, 0], [2, 8, 3, 0, 0]])

    def test_classes_are_numbered_as_given_or_as_in_another_folder(self):
        self.run_it("--for=bert", "--text=review", "--label=stars", "--vocabulary=400", "--length=12",
                    "--classes=pos,neg,mixed", self.reviews())
        made = json.loads((self.dir / "out/data.json").read_text())
        self.assertEqual(made["classes"], ["pos", "neg", "mixed"])
        self.assertIn("classes: 3", (self.dir / "out/data.txtpb").read_text())
        test = self.file("t.csv", "review,stars\ngood,neg\nbad,neg\n")
        self.run_it(f"--like={self.dir}/out", "--text=review", "--label=stars", test, out="test")
        self.assertEqual(load(self.dir / "test/eval.labels.npy")[1], [1, 1])
        self.assertEqual(load(self.dir / "test/eval.tokens.npy")[0], (2, 12))
        self.assertFalse((self.dir / "test/train.tokens.npy").exists())
        like = json.loads((self.dir / "test/data.json").read_text())
        for key in ("for", "classes", "length", "vocabulary", "tokenizer_sha256"):
            self.assertEqual(like[key], made[key], key)
        self.assertIn("classes: 3", (self.dir / "test/data.txtpb").read_text())
        other = self.file("o.csv", "review,stars\ngood,neg\nbad,worst\n")
        for code, says, args in [
                (65, "o.csv' line 3: class 'worst' is none of pos, neg, mixed",
                 [f"--like={self.dir}/out", "--label=stars", other]),
                (65, "line 3: class 'worst' is none of neg", ["--for=bert", "--classes=neg", "--label=stars", other]),
                (64, "--length contradicts --like", [f"--like={self.dir}/out", "--length=9", other]),
                (64, "was made for bert", [f"--like={self.dir}/out", "--for=gpt", other]),
                (64, "--classes=a,a: expected different", ["--for=bert", "--classes=a,a", "--label=stars", other]),
                (64, "--classes needs --label", ["--for=bert", "--classes=a,b", other]),
                (74, "cannot read", [f"--like={self.dir}/none", other])]:
            with self.subTest(says):
                self.assertIn(says, self.run_it("--text=review", *args, code=code, out="refused"))
                self.assertFalse((self.dir / "refused").exists())
        (self.dir / "out/tokenizer.json").write_text("{}")
        self.assertIn("does not belong to", self.run_it(f"--like={self.dir}/out", test, code=65, out="refused"))

    def test_whole_numbers_are_numbered_by_value(self):
        rows = "".join(json.dumps({"text": f"number {i}", "label": i % 12}) + "\n" for i in range(24))
        self.run_it("--for=bert", "--label=label", "--vocabulary=300", "--eval-share=0",
                    self.file("n.jsonl", rows))
        self.assertEqual(load(self.dir / "out/train.labels.npy")[1], [i % 12 for i in range(24)])
        table = "text,label\n" + "".join(f"number {i},{i % 12}.0\n" for i in range(24))
        self.run_it("--for=bert", "--label=label", "--vocabulary=300", "--eval-share=0", self.file("n.csv", table),
                    out="points")
        self.assertEqual(load(self.dir / "points/train.labels.npy")[1], [i % 12 for i in range(24)])

    def test_a_test_set_has_pairs_and_labels_where_the_data_has(self):
        table = self.file("p.csv", "text,b,label\n" + "".join(f"t {i},b {i},{i % 3}\n" for i in range(30)))
        self.run_it("--for=bert", "--pair=b", "--label=label", "--vocabulary=300", table)
        like = f"--like={self.dir}/out"
        self.assertIn("has pairs of texts: expected --pair=COLUMN, found none",
                      self.run_it(like, "--label=label", table, code=64, out="test"))
        self.run_it(like, "--pair=b", table, out="test")  # without labels, for predict
        self.assertNotIn("masked", (self.dir / "test/data.txtpb").read_text())
        self.run_it("--for=bert", "--label=label", "--vocabulary=300", table, out="single")
        self.assertIn("has no pairs of texts: expected no --pair, found --pair=b", self.run_it(
            f"--like={self.dir}/single", "--pair=b", "--label=label", table, code=64, out="test2"))

    def test_missing_values_of_json_may_be_left_out(self):
        lines = self.file("m.jsonl", '{"text": "a", "label": 1}\n{"text": NaN, "label": 1}\n'
                          '{"text": "b", "label": null}\n{"text": "c", "label": NaN}\n{"text": "d", "label": 0}\n')
        flags = ["--for=bert", "--label=label", "--vocabulary=300", "--eval-share=0", lines]
        self.assertIn("m.jsonl' line 2: no text; --skip-empty leaves", self.run_it(*flags, code=65))
        self.assertIn("left out: 3 documents without text or class", self.run_it(*flags, "--skip-empty"))
        self.assertEqual(load(self.dir / "out/train.labels.npy")[1], [1, 0])

    def test_nothing_is_replaced(self):
        text = self.file("a.txt", "a b c\n" * 9)
        self.run_it("--for=bert", "--eval-share=0", "--vocabulary=400", text)
        before = {path.name: path.read_bytes() for path in (self.dir / "out").iterdir()}
        said = self.run_it("--for=bert", "--eval-share=0", "--vocabulary=500", text, code=74)
        self.assertIn("has tokenizer.json, train.tokens.npy, train.lengths.npy, data.txtpb, data.json", said)
        self.assertEqual({path.name: path.read_bytes() for path in (self.dir / "out").iterdir()}, before)

    def test_a_stream_decodes_to_the_text(self):
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
        for out in ("a", "b"):
            self.run_it("--for=bert", "--eval-share=0", "--vocabulary=400", text, out=out)
            made.append((self.dir / out / "tokenizer.json").read_text())
        self.assertEqual(*made)
        self.assertIn('"abcdefghij"', made[0])

    def test_a_tokenizer_is_taken_as_it_is(self):
        self.run_it("--for=bert", "--text=review", "--vocabulary=400", self.reviews())
        saved = (self.dir / "out/tokenizer.json").read_text()
        given = self.file("given.json", saved)
        self.run_it("--for=bert", "--text=review", f"--tokenizer={given}", self.reviews(), out="again")
        self.assertEqual((self.dir / "again/tokenizer.json").read_text(), saved)

    def test_what_a_tokenizer_pads_and_cuts_is_not_padded_and_cut(self):
        self.run_it("--for=bert", "--text=review", "--vocabulary=400", self.reviews())
        lengths = load(self.dir / "out/train.lengths.npy")
        saved = json.loads((self.dir / "out/tokenizer.json").read_text())
        saved["padding"] = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None,
                            "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
        saved["truncation"] = {"max_length": 3, "strategy": "LongestFirst", "stride": 0,
                               "direction": "Right"}
        given = self.file("given.json", json.dumps(saved))
        self.run_it("--for=bert", "--text=review", f"--tokenizer={given}", self.reviews(), out="again")
        self.assertEqual(load(self.dir / "again/train.lengths.npy"), lengths)

    def test_words_that_a_vocabulary_lacks_are_counted(self):
        words = self.file("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhello\nworld\n##s\nhello\n\n\ngood\n")
        text = self.file("a.txt", "Hello world\ngood Worlds\n\u4e00 bad\n")
        said = self.run_it("--for=bert", f"--tokenizer={words}", "--eval-share=0", "--length=8", text)
        self.assertIn("train: 3 documents, 12 tokens, 4 unknown ([UNK]) (the vocabulary has no capital letters: ", said)
        self.assertEqual(json.loads((self.dir / "out/data.json").read_text())["train"]["unknown"], 4)
        said = self.run_it("--for=bert", f"--tokenizer={words}", "--eval-share=0", "--lowercase", text, out="small")
        self.assertIn("3 documents, 13 tokens, 2 unknown ([UNK])\n", said)
        # The largest id is that of "good": a word is there twice.
        self.assertIn("vocabulary: 11 tokens", said)
        self.assertIn("vocabulary: 11 ", (self.dir / "small/data.txtpb").read_text())
        self.assertEqual(max(load(self.dir / "small/train.tokens.npy")[1]), 10)

    def test_flags_that_would_have_no_effect_are_refused(self):
        self.run_it("--for=bert", "--text=review", "--vocabulary=400", self.reviews())
        for says, args in [
                ("--lowercase contradicts --tokenizer=", ["--lowercase", f"--tokenizer={self.dir}/out/tokenizer.json"]),
                ("--vocabulary contradicts --tokenizer=", ["--vocabulary=400", "--tokenizer=vocab.txt"]),
                ("t.txt' has no columns", ["--text=review", self.file("t.txt", '{"review": "good"}\n')])]:
            self.assertIn(says, self.run_it("--for=bert", *args, self.reviews(), code=64, out="other"))

    def test_refusals_name_file_line_and_value(self):
        for code, says, args in [
                (65, "x.txt' line 2: byte 0xff is no UTF-8", [self.file("x.txt", b"ok\n\xff\n")]),
                (65, "line 2: no text", [self.file("e.txt", "a\n  \nb\n")]),
                (65, "z.txt' line 2: no text", [self.file("z.txt", "a\n\u200b\ufeff\ufffd \u3000\nb\n")]),
                (65, "no column 'review'; the columns are a, b", [
                    "--text=review", self.file("c.csv", "a,b\n1,2\n")]),
                (65, "line 1: no JSON", [self.file("j.jsonl", "{")]),
                (65, "line 1: expected an object", [self.file("k.jsonl", "[1]")]),
                (65, "has no [PAD]", [f"--tokenizer={self.file('vocab.txt', 'a')}",
                                      self.file("t.txt", "a\nb")]),
                (74, "cannot read", [str(self.dir / "none.txt")]),
                (64, "has no columns", ["--label=a", self.file("t2.txt", "a")]),
                (65, "no value in column 'b'", ["--text=a", "--label=b",
                                                self.file("d.csv", "a,b\n1\n")]),
                (65, "e.csv' line 3: no class in column 'label'", [
                    "--label=label", self.file("e.csv", "text,label\na,x\nb, \n")]),
                (65, "m.csv' line 4: no class in", [
                    "--label=label", self.file("m.csv", 'text,label\n"a\nb",x\nc,\n')]),
                (65, "q.csv' line 1: ", [self.file("q.csv", '"text"x\n')]),
                (65, "q2.csv' line 3: ", [self.file("q2.csv", 'text\na\n"b"x\n')]),
                (65, "w.csv' line 2: expected 2 columns, found 3", [
                    "--label=label", self.file("w.csv", "text,label\na, b,x\n")]),
                (65, "p.tsv' line 3: a quoted text goes over a tab: is \" a plain character here?", [
                    "--label=label", self.file("p.tsv", 'text\tlabel\na\tx\n"b\ty\nc"\tx\n')]),
                (65, "g.csv' is compressed by gzip", [self.file("g.csv", gzip.compress(b"text\na\n"))]),
                (65, "nul.txt' line 2: a zero byte", ["--for=gpt", self.file("nul.txt", b"a\n\0\n")]),
                (65, "s.jsonl' line 1: '\\ud800' is half a character", [
                    self.file("s.jsonl", '{"text": "a \\ud800"}')]),
                (65, "l.jsonl' line 2: '\\udc00' is half a character", [
                    "--label=b", self.file("l.jsonl", '{"text": "a", "b": "x"}\n{"text": "a", "b": "\\udc00"}')]),
                (65, "sp.csv' line 4: class ' y' differs from 'y' in spaces alone", [
                    "--label=label", self.file("sp.csv", "text,label\na,x\nb,y\nc, y\n")]),
                (65, "f.csv' line 3: class '5.0' differs from '5' in '.0' alone", [
                    "--label=label", self.file("f.csv", "text,label\na,5\nb,5.0\n")]),
                (65, "class '\\x1b[31m\\x9b' is none of a", ["--classes=a", "--label=label", self.file(
                    "c1.csv", "text,label\nx,\x1b[31m\x9b\n")]),
                (65, "d2.csv' line 1: two columns are called 'text'", [
                    self.file("d2.csv", "text,b,text\na,b,c\n")]),
                (65, "w.jsonl' line 1: column 'text': expected a text or a number, found a list", [
                    self.file("w.jsonl", '{"text": ["a", "b"]}\n')]),
                (64, "at least 4 and --vocabulary of at least 300, found 3 and 8000", [
                    "--length=3", self.file("t4.txt", "a")]),
                (64, "--eval-share is 1.0", ["--eval-share=1", self.file("t3.txt", "a")]),
        ]:
            with self.subTest(says):
                self.assertIn(says, self.run_it("--for=bert", *args, code=code))
                self.assertFalse((self.dir / "out").exists())

    def test_invalid_command_line_exits_64(self):
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
