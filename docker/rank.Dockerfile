# The image that ranks run in: torch, ddp_core and verifier. No service, no queue, nothing that listens.
#
#   docker build --file docker/rank.Dockerfile --tag lockstep-rank .
#   docker build ... --build-arg BASE_IMAGE=nvidia/cuda:... --build-arg TORCH_INDEX_URL=    for GPUs; the base has Python
ARG BASE_IMAGE=python:3.11-slim
# An image that holds wheels, for a builder that reaches no index: pip looks there first. None by default.
ARG WHEELS_IMAGE=scratch
FROM ${WHEELS_IMAGE} AS wheels
FROM ${BASE_IMAGE}

# Where the CPU build of torch is found. For CUDA: the index of a CUDA build, or an empty value for the default one.
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

WORKDIR /opt/lockstep
# By far the largest layer first: it changes only when the pinned version of torch does. Out go torch's own tests, its
# headers and all programs but the one that shares tensors.
COPY constraints.txt ./
RUN --mount=type=bind,from=wheels,target=/wheels \
    pip install --constraint constraints.txt --find-links /wheels ${TORCH_INDEX_URL:+--extra-index-url "$TORCH_INDEX_URL"} torch \
    && cd "$(python -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')" \
    && rm -rf test include && find bin -type f ! -name torch_shm_manager -delete
COPY pyproject.toml docker/requirements.py ./
RUN python requirements.py > requirements.txt && pip install --constraint constraints.txt --requirement requirements.txt
COPY README.md LICENSE ./
COPY ddp_core ddp_core
COPY verifier verifier
COPY service/__init__.py service/__init__.py
# hatchling, which builds the wheel, is left out of the image; and nothing in it can become another user.
RUN pip install --no-deps . \
    && find / -xdev -perm /6000 -type f -exec chmod a-s {} +

# No name, no home, no shell: a rank needs none. Both ids, since a user alone would keep group 0.
USER 1000:1000
ENV HOME=/tmp OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo PYTHONDONTWRITEBYTECODE=1
WORKDIR /tmp
# A rank is judged by its recording and by its deadline; a probe would only take CPU from what is being timed.
HEALTHCHECK NONE
CMD ["lockstep", "--help"]
