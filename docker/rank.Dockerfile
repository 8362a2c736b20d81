# The image that ranks run in: torch, ddp_core and verifier. No service, no queue, nothing that listens.
ARG BASE_IMAGE=python:3.11-slim
FROM ${BASE_IMAGE}

# Where the CPU build of torch is found. For CUDA: the index of a CUDA build, or an empty value for the default one.
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

WORKDIR /opt/lockstep
# By far the largest layer first: it changes only when the pinned version of torch does.
COPY constraints.txt ./
RUN pip install --constraint constraints.txt ${TORCH_INDEX_URL:+--extra-index-url "$TORCH_INDEX_URL"} torch
COPY pyproject.toml docker/requirements.py ./
RUN python requirements.py > requirements.txt && pip install --constraint constraints.txt --requirement requirements.txt
COPY README.md LICENSE ./
COPY ddp_core ddp_core
COPY verifier verifier
COPY service/__init__.py service/__init__.py
RUN pip install --no-deps .

# No name, no home, no shell: a rank needs none. Both ids, since a user alone would keep group 0.
USER 1000:1000
ENV HOME=/tmp OMP_NUM_THREADS=1
WORKDIR /tmp
# A rank is judged by its recording and by its deadline; a probe would only take CPU from what is being timed.
HEALTHCHECK NONE
CMD ["lockstep", "--help"]
