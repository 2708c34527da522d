# The project in a container, on a CPU. In this folder:
#
#   docker build -t fltnb .
#   docker run --rm -v fltnb-results:/home/fltnb/project/results fltnb    # make reproduce
#   docker run --rm fltnb make test
#
# Some 3 GB are downloaded once, as by `make`: the locked torch is built for GPUs, too.
FROM python:3.12-slim

# The newest of both will do: no number depends on them.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git make \
    && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home --uid 1000 fltnb
USER 1000
WORKDIR /home/fltnb/project

# Packages come first, so that a change of code does not download them again.
COPY --chown=fltnb:fltnb LICENSE Makefile README.md pyproject.toml requirements.lock ./
COPY --chown=fltnb:fltnb fltnb/__init__.py fltnb/
RUN make .venv/.ready
COPY --chown=fltnb:fltnb . .

CMD ["make", "reproduce"]
