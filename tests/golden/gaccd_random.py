"""gaccd's random numbers, its order of the samples and how they are mixed: daemon/tensor/random.h,
daemon/data/sample_order.h, daemon/data/mixed_samples.h."""
import math

import numpy

GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def mix64(x):  # uint64 arrays
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return x ^ (x >> numpy.uint64(31))


def stream_key(a, b):  # StreamKey(a, b)
    start = numpy.array([(a + GOLDEN) & MASK], dtype=numpy.uint64)
    return int(mix64(mix64(start) + numpy.uint64((b + 1) * GOLDEN & MASK))[0])


def stream_values(key, count, first=0):  # StreamValue(key, first .. first + count-1)
    steps = numpy.arange(first + 1, first + count + 1, dtype=numpy.uint64) * numpy.uint64(GOLDEN)
    return mix64(numpy.uint64(key) + steps)


def stream(a, b, count):
    return stream_values(stream_key(a, b), count)


def uniform(bits):  # [-1, 1), 24 bits
    return (bits >> numpy.uint64(40)).astype(numpy.float64) * 2.0**-23 - 1


def normal(bits):  # StandardNormal
    """Wichura's AS 241 (PPND7), as NormalQuantile."""
    p = ((bits >> numpy.uint64(11)).astype(numpy.float64) + 0.5) * 2.0**-53
    q = p - 0.5
    r = 0.180625 - q * q
    middle = (q * numpy.polyval([59.109374720, 159.29113202, 50.434271938, 3.3871327179], r)
              / numpy.polyval([67.187563600, 78.757757664, 17.895169469, 1.0], r))
    r = numpy.sqrt(-numpy.log(numpy.minimum(p, 1 - p)))
    near = (numpy.polyval([0.17023821103, 1.3067284816, 2.7568153900, 1.4234372777], r - 1.6)
            / numpy.polyval([0.12021132975, 0.73700164250, 1.0], r - 1.6))
    far = (numpy.polyval([0.017337203997, 0.42868294337, 3.0812263860, 6.6579051150], r - 5)
           / numpy.polyval([0.012258202635, 0.24197894225, 1.0], r - 5))
    tail = numpy.sign(q) * numpy.where(r <= 5, near, far)
    return numpy.where(numpy.abs(q) <= 0.425, middle, tail)


def order_of_epoch(seed, epoch, size, shuffle):
    """A keyed Feistel network over at least 8 bits; values outside of the set go through again."""
    if not shuffle:
        return list(range(size))
    bits = max(8, (size - 1).bit_length())
    low_bits, high_bits = bits // 2, bits - bits // 2
    keys = stream(seed, epoch, 8)
    value = numpy.arange(size, dtype=numpy.uint64)
    inside = numpy.zeros(size, dtype=bool)
    while not inside.all():
        low = value & numpy.uint64((1 << low_bits) - 1)
        high = value >> numpy.uint64(low_bits)
        for even, odd in zip(keys[::2], keys[1::2]):
            low = low ^ (mix64(high ^ even) & numpy.uint64((1 << low_bits) - 1))
            high = high ^ (mix64(low ^ odd) & numpy.uint64((1 << high_bits) - 1))
        value = numpy.where(inside, value, (high << numpy.uint64(low_bits)) | low)
        inside = value < size
    return value.tolist()


class Numbers:
    """RandomStream of daemon/tensor/random.h."""

    def __init__(self, key):
        self.key, self.next = key, 0

    def bits(self):
        self.next += 1
        return stream_values(self.key, 1, self.next - 1)

    def uniform(self, least, most):
        return least + (most - least) * (int(self.bits()[0]) >> 11) * 2.0**-53

    def below(self, count):
        return int(self.uniform(0, count))

    def normal(self):
        return float(normal(self.bits())[0])


def log_gamma(shape, numbers):
    d = (shape + 1 if shape < 1 else shape) - 1 / 3
    while True:
        x, log_u = numbers.normal(), math.log(1 - numbers.uniform(0, 1))
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0 and log_u < x * x / 2 + d - d * v + d * math.log(v):
            break
    return math.log(d * v) + (math.log(1 - numbers.uniform(0, 1)) / shape if shape < 1 else 0)


def mix_group(key, samples, mixup, cutmix, height, width):
    """(lambda, (top, left, height, width) or None, partners), where 0 is no alpha: DrawGroupMix."""
    if samples == 1:
        return 1, None, [0]
    numbers, box = Numbers(key), None
    cuts = cutmix > 0 and (mixup == 0 or numbers.uniform(0, 1) < 0.5)
    a, b = (log_gamma(cutmix if cuts else mixup, numbers) for _ in range(2))
    lam = 1 / (1 + math.exp(b - a))
    if cuts:  # torchvision's CutMix
        x, y, r = numbers.below(width), numbers.below(height), 0.5 * math.sqrt(1 - lam)
        top, left = max(y - int(r * height), 0), max(x - int(r * width), 0)
        box = top, left, min(y + int(r * height), height) - top, min(x + int(r * width), width) - left
        lam = 1 - box[2] * box[3] / (height * width)
    partners = list(range(samples))
    for i in range(samples - 1, 0, -1):
        j = numbers.below(i)
        partners[i], partners[j] = partners[j], partners[i]
    return round(lam * 2**24) / 2**24, box, partners
