"""torch's own tests of DistributedDataParallel, run with ``ddp_core.DataParallel`` in its place.

They come with every torch wheel (torch/testing/_internal/distributed/distributed_test.py). Special here: nobody who
wrote them had this wrapper in mind, and each one is run with torch's DDP, too, so that a test which cannot pass on a
machine without GPUs is not counted against, or for, anyone. ``python -m tests.torch_suite --help``.
"""
