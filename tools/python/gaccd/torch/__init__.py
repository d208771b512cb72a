"""gaccd's exact updates in a PyTorch loop with DistributedDataParallel. Needs torch, which `import gaccd` does not."""

from .accumulate import Accumulation, AuditError, accumulate
from .batches import ExactBatches, Update
from .collectives import all_gather, all_reduce_sum

__all__ = ["Accumulation", "AuditError", "ExactBatches", "Update", "accumulate", "all_gather", "all_reduce_sum"]
