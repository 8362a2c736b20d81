# The image of the API and of the worker: the command decides which. The worker runs ranks itself, hence torch.
ARG BASE_IMAGE=python:3.11-slim
FROM ${BASE_IMAGE}

# Where the CPU build of torch is found. For CUDA: the index of a CUDA build, or an empty value for the default one.
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

WORKDIR /opt/lockstep
# Up to here and including torch the same as rank.Dockerfile, so the two images share these layers.
COPY constraints.txt ./
RUN pip install --constraint constraints.txt ${TORCH_INDEX_URL:+--extra-index-url "$TORCH_INDEX_URL"} torch
COPY pyproject.toml docker/requirements.py ./
RUN python requirements.py service > requirements.txt \
    && pip install --constraint constraints.txt --requirement requirements.txt
COPY README.md LICENSE ./
COPY ddp_core ddp_core
COPY verifier verifier
COPY service service
RUN pip install --no-deps .

# A named volume takes over the owner of the directory that it covers.
RUN mkdir /data && chown 1000:1000 /data
USER 1000:1000
ENV HOME=/tmp LOCKSTEP_DATA_DIR=/data LOCKSTEP_HOST=0.0.0.0 LOCKSTEP_PORT=8000
VOLUME /data
EXPOSE 8000
# Only what the address inside the container says; who may reach it from outside is compose.yaml's business.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ['LOCKSTEP_PORT']}/healthz\", timeout=4)"]
CMD ["lockstep", "serve"]
