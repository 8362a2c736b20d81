# The image of the API and of the worker: the command decides which. Neither runs a strategy; the worker has the engine
# start containers of the image for ranks, so there is no torch in here.
ARG BASE_IMAGE=python:3.11-slim
# An image that holds wheels, for a builder that reaches no index: pip looks there first. None by default.
ARG WHEELS_IMAGE=scratch
FROM ${WHEELS_IMAGE} AS wheels
FROM ${BASE_IMAGE}

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

WORKDIR /opt/lockstep
COPY constraints.txt pyproject.toml docker/requirements.py ./
RUN --mount=type=bind,from=wheels,target=/wheels \
    python requirements.py --without-torch service docker bench > requirements.txt \
    && pip install --constraint constraints.txt --find-links /wheels --requirement requirements.txt
COPY README.md LICENSE ./
COPY ddp_core ddp_core
COPY verifier verifier
COPY service service
RUN pip install --no-deps . \
    && find / -xdev -perm /6000 -type f -exec chmod a-s {} +

# A named volume takes over the owner of the directory that it covers.
RUN mkdir /data && chown 1000:1000 /data
USER 1000:1000
ENV HOME=/tmp LOCKSTEP_DATA_DIR=/data LOCKSTEP_HOST=0.0.0.0 LOCKSTEP_PORT=8000 PYTHONDONTWRITEBYTECODE=1
VOLUME /data
EXPOSE 8000
# Only what the address inside the container says; who may reach it from outside is compose.yaml's business.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ['LOCKSTEP_PORT']}/healthz\", timeout=4)"]
CMD ["lockstep", "serve"]
