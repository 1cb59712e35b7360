# The image of the service.
#   docker build -t lachesis .
# One container with the embedded Valkey, for this machine. The two addresses are the same one: without authentication
# the service starts only if LACHESIS_PUBLISHED_ON says that no other machine reaches it.
#   docker run --stop-timeout 40 -p 127.0.0.1:8000:8000 -e LACHESIS_PUBLISHED_ON=127.0.0.1 -v lachesis:/data lachesis
# For a network, create a token first:
#   docker run --rm -v lachesis:/data lachesis python -m app token create --role operator
#   docker run --stop-timeout 40 -p 8000:8000 -v lachesis:/data lachesis
# Several containers with a separate Valkey:
#   docker compose up
ARG PYTHON_IMAGE=python:3.12.12-slim-trixie

FROM ${PYTHON_IMAGE} AS builder
COPY requirements/server.lock /build/server.lock
RUN python -m venv --without-pip /opt/venv \
    && python -m pip --python /opt/venv/bin/python install --no-cache-dir --disable-pip-version-check \
        --require-hashes --only-binary :all: -r /build/server.lock

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="Lachesis" \
      org.opencontainers.image.description="Exact, fair, durable batches between rollout workers and RL trainers." \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="MIT"

COPY --from=builder /opt/venv /opt/venv
WORKDIR /srv/lachesis
COPY pyproject.toml ./
COPY app ./app
COPY clients/lachesis ./lachesis
# Compile bytecode now, because the root file system may be read-only at run time.
RUN /opt/venv/bin/python -m compileall -q app lachesis \
    && install -d -o 10001 -g 10001 -m 0700 /data

ENV PATH=/opt/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    LACHESIS_HOST=0.0.0.0 \
    LACHESIS_PORT=8000 \
    LACHESIS_DATA_DIR=/data
USER 10001:10001
VOLUME /data
EXPOSE 8000

# Check that this process is alive. /readyz also checks Redis, but an outage of Redis must not kill the container.
# At its start the embedded Valkey loads its data, which may take minutes. The first success ends this period.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m --retries=3 \
    CMD ["python", "-m", "app.process.health_check"]
CMD ["python", "-m", "app", "serve"]
