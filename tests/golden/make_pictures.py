#!/usr/bin/env python3
"""Writes tests/golden/pictures: small image files, and in pictures.txt what PIL and torchvision make of them.

Run with any Python that has torchvision (the committed files: torchvision 0.29, Pillow 13.0):
  tests/golden/make_pictures.py

decode FILE channels height width PIXELS     Image.open(FILE).convert("L" or "RGB"), in hexadecimal
refuse FILE words                            of the error
resize top left height width h w PIXELS      resized_crop of base.png, the rows first
center resize h w PIXELS                     Resize(resize) and CenterCrop((h, w)) of base.png; resize 0: only the crop
color name factor PIXELS                     adjust_NAME of base.png
crop key height width top left height width  RandomResizedCrop.get_params with the numbers of gaccd's stream `key`
erase key height width top left height width RandomErasing(p=1).get_params, too; 0 0 0 0: nothing
augment name magnitude PIXELS                what RandAugment does with base.png; of Equalize and AutoContrast: 0
operations key bins magnitude height width N NAME MAGNITUDE ...   the N operations that RandAugment draws, with the
                                             numbers of gaccd's stream `key`
"""
import io
import math
import pathlib
import struct
import tarfile
import zlib

import gaccd_random
import numpy
import PIL.Image
import torch
import torchvision.transforms as transforms
import torchvision.transforms.autoaugment as autoaugment
import torchvision.transforms.functional as functional

FOLDER = pathlib.Path(__file__).parent / "pictures"
random = numpy.random.default_rng(20261125)
lines = []


def image(height, width, noise=24.0):
    """Smooth colours, with noise: what all formats can hold."""
    y, x = numpy.mgrid[0:height, 0:width]
    waves = [numpy.sin(x * a + y * b + c) for a, b, c in ((0.3, 0.1, 0), (0.1, 0.4, 2), (-0.2, 0.3, 4))]
    values = numpy.stack(waves, -1) * 110 + 128 + random.normal(0, noise, (height, width, 3))
    return PIL.Image.fromarray(values.clip(0, 255).astype("uint8"))


def pixels(picture):
    return numpy.asarray(picture).tobytes().hex()


def png(name, height, width, bits, color, rows, interlaced=0, extra=()):
    """What PIL cannot write."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    (FOLDER / name).write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(
        b"IHDR", struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, interlaced)) + b"".join(
            chunk(*one) for one in extra) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def write_files():
    picture = image(11, 14)
    alpha = PIL.Image.fromarray(random.integers(0, 256, (11, 14), "uint8"))
    with_alpha = picture.copy()
    with_alpha.putalpha(alpha)
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # orientation: to be turned by 90 degrees
    picture.save(FOLDER / "420.jpg", quality=90)
    picture.save(FOLDER / "444.jpg", quality=90, subsampling=0)
    picture.save(FOLDER / "progressive.jpg", quality=80, progressive=True)
    picture.save(FOLDER / "exif.jpg", quality=90, exif=exif)
    picture.convert("L").save(FOLDER / "grey.jpg")
    picture.convert("CMYK").save(FOLDER / "cmyk.jpg", quality=95)
    image(1, 1).save(FOLDER / "one.jpg")
    picture.save(FOLDER / "rgb.png")
    with_alpha.save(FOLDER / "rgba.png")
    with_alpha.convert("LA").save(FOLDER / "la.png")
    picture.quantize(8).save(FOLDER / "palette.png", transparency=3)
    picture.convert("1").save(FOLDER / "bits.png")
    rows = bytes([0, 0x01, 0x23, 0x45, 0, 0xCD, 0xEF, 0x80])
    png("grey4.png", 2, 6, 4, 0, rows)
    png("gamma.png", 2, 6, 4, 0, rows, extra=[(b"gAMA", struct.pack(">I", 100000))])
    picture.save(FOLDER / "lossy.webp", quality=80)
    picture.save(FOLDER / "lossless.webp", lossless=True)
    with_alpha.save(FOLDER / "alpha.webp", lossless=True, exact=True)
    # Refused.
    png("grey16.png", 1, 2, 16, 0, b"\0\1\2\3\4")
    picture.save(FOLDER / "animation.webp", save_all=True, append_images=[image(11, 14)], lossless=True)
    image(3, 3).save(FOLDER / "other.gif")


def write_shards():
    """As WebDataset's TarWriter, with a name that needs a header of its own."""
    for name, kind in (("pax.tar", tarfile.PAX_FORMAT), ("gnu.tar", tarfile.GNU_FORMAT)):
        with tarfile.open(FOLDER / name, "w", format=kind) as shard:
            for key, picture, label in (("000", "420.jpg", 7), ("more/" * 30 + "001", "rgb.png", 3), ("002", "one.jpg", 0)):
                for suffix, content in ((picture[-3:], (FOLDER / picture).read_bytes()), ("cls", b"%d" % label),
                                        ("json", b"{}")):
                    member = tarfile.TarInfo(f"{key}.{suffix}")
                    member.size, member.mtime, member.uname = len(content), 1700000000.25, "bigdata"
                    shard.addfile(member, io.BytesIO(content))


def record_files():
    for path in sorted(FOLDER.iterdir()):
        if path.suffix == ".tar" or path.name.startswith("part_") or path.name in ("pictures.txt", "base.png", "grey16.png", "animation.webp", "other.gif"):
            continue
        for channels, mode in ((1, "L"), (3, "RGB")):
            picture = PIL.Image.open(path).convert(mode)
            lines.append(f"decode {path.name} {channels} {picture.height} {picture.width} {pixels(picture)}")
    lines.append("refuse grey16.png at most 8 bits a channel, found 16")
    lines.append("refuse animation.webp found an animation")
    lines.append("refuse other.gif found a GIF file")


def record_sizes(base):
    for box in ((0, 0, 20, 27), (3, 5, 15, 7), (19, 26, 1, 1), (0, 12, 20, 2), (7, 0, 1, 27)):
        for size in ((8, 8), (20, 27), (5, 64), (1, 1)):
            out = functional.resized_crop(base, *box, size)
            # Pillow 13 begins with the columns where that is less work; those before it, and gaccd, with the rows.
            rows_first = functional.resized_crop(base, *box, (box[2], size[1])).resize(size[::-1], PIL.Image.BILINEAR)
            assert numpy.abs(numpy.asarray(out, int) - numpy.asarray(rows_first, int)).max() <= 1
            out = rows_first
            lines.append(" ".join(map(str, ["resize", *box, *size])) + " " + pixels(out))
    for resize, size in ((12, (12, 12)), (9, (5, 8)), (33, (33, 21)), (0, (13, 20)), (0, (20, 27)), (7, (7, 9))):
        steps = ([transforms.Resize(resize)] if resize else []) + [transforms.CenterCrop(size)]
        out = transforms.Compose(steps)(base)
        lines.append(f"center {resize} {size[0]} {size[1]} {pixels(out)}")


def record_colors(base):
    for name, factors in (("brightness", (0, 0.4, 1, 1.7)), ("contrast", (0, 0.6, 1.3)),
                          ("saturation", (0, 0.5, 2.2)), ("hue", (-0.5, -0.2, 0.004, 0.02, 0.1, 0.5))):
        for factor in factors:
            out = getattr(functional, f"adjust_{name}")(base, factor)
            lines.append(f"color {name} {factor} {pixels(out)}")


class Numbers:
    """In place of PyTorch's random numbers: those of one of gaccd's streams, in order."""

    def __init__(self, key):
        self.key, self.next = key, 0

    def uniform(self, least, most):
        share = int(gaccd_random.stream_values(self.key, 1, self.next)[0] >> numpy.uint64(11)) * 2.0**-53
        self.next += 1
        return float(least) + (float(most) - float(least)) * share

    def randint(self, *bounds, size=None):  # least and most, or most alone; then the size, maybe
        least, most = [0, *(bound for bound in bounds if isinstance(bound, int))][-2:]
        return torch.tensor([int(self.uniform(least, most))])

    def replay(self, function):
        real = torch.Tensor.uniform_, torch.randint
        torch.Tensor.uniform_ = lambda _, least, most: torch.tensor([self.uniform(least, most)], dtype=torch.float64)
        torch.randint = self.randint
        try:
            return function()
        finally:
            torch.Tensor.uniform_, torch.randint = real


def record_boxes():
    crop, erase = 1, 4  # numbers of the operations: daemon/data/images/image_transform.cc
    for key in range(40):
        height, width = ((30, 41), (100, 3), (64, 64), (480, 640), (1, 1))[key % 5]
        blank = PIL.Image.new("RGB", (width, height))
        box = Numbers(gaccd_random.stream_key(key, crop)).replay(
            lambda: transforms.RandomResizedCrop.get_params(blank, [0.08, 1.0], [3 / 4, 4 / 3]))
        lines.append(" ".join(map(str, ["crop", key, height, width, *box])))
        numbers = Numbers(gaccd_random.stream_key(key, erase))
        numbers.uniform(0, 1)  # whether
        values = torch.ones(3, height, width)
        top, left, h, w, _ = numbers.replay(
            lambda: transforms.RandomErasing.get_params(values, [0.02, 0.33], [0.3, 3.3], [0.0]))
        box = (0, 0, 0, 0) if (h, w) == (height, width) else (top, left, h, w)
        lines.append(" ".join(map(str, ["erase", key, height, width, *box])))


def record_augmentations(base):
    for name, magnitudes in (("Identity", [0]), ("ShearX", [0.09, -0.3, 0]), ("ShearY", [-0.09, 0.3]),
                             ("TranslateX", [3.6, -5.2, 0]), ("TranslateY", [-2.9, 4]), ("Rotate", [9, -9, 30, -17.5, 0]),
                             ("Brightness", [0.27, -0.9]), ("Color", [0.27, -0.9]), ("Contrast", [0.9, -0.27]),
                             ("Sharpness", [0.9, -0.9, -0.27]), ("Posterize", [8, 6, 4]), ("Solarize", [178.5, 255, 0, 128]),
                             ("AutoContrast", [0]), ("Equalize", [0])):
        for magnitude in magnitudes:
            out = autoaugment._apply_op(base, name, magnitude, transforms.InterpolationMode.NEAREST, None)
            lines.append(f"augment {name} {magnitude} {pixels(out)}")
    for key in range(60):
        height, width = ((224, 224), (20, 27), (8, 331), (32, 32), (5, 3))[key % 5]
        bins, magnitude, count = ((31, 9, 2), (10, 9, 4), (31, 30, 1), (9, 1, 3), (52, 26, 6), (2, 0, 3))[key % 6]
        drawn = []
        blank = PIL.Image.new("RGB", (width, height))
        real, autoaugment._apply_op = autoaugment._apply_op, lambda image, *what, **_: drawn.append(what) or image
        Numbers(gaccd_random.stream_key(key, 5)).replay(
            lambda: transforms.RandAugment(count, magnitude, bins)(blank))
        autoaugment._apply_op = real
        words = [word for name, strength in drawn for word in (name, repr(strength))]
        lines.append(" ".join(map(str, ["operations", key, bins, magnitude, height, width, count, *words])))


def write_larger():
    """Of which parts are decoded."""
    picture = image(75, 91)
    for name, how in (("420", {}), ("422", {"subsampling": 1}), ("444", {"subsampling": 0}), ("progressive", {"progressive": True})):
        picture.save(FOLDER / f"part_{name}.jpg", quality=85, **how)
    picture.convert("L").save(FOLDER / "part_grey.jpg")
    picture.convert("CMYK").save(FOLDER / "part_cmyk.jpg", quality=85)


def main():
    FOLDER.mkdir(exist_ok=True)
    write_files()
    write_shards()
    record_files()
    base = image(20, 27)
    base.save(FOLDER / "base.png")
    record_sizes(base)
    record_colors(base)
    record_boxes()
    record_augmentations(base)
    write_larger()
    (FOLDER / "pictures.txt").write_text("\n".join(lines) + "\n")


main()
