# The command line: docker build -t suffice . && docker run --rm -v "$PWD:/data" suffice tune table.csv --target y
# With the pinned packages, which are those of Python 3.11. Runs as a user without rights; /data is where tables are.
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY requirements requirements
COPY src src
COPY examples examples
RUN pip wheel --no-cache-dir --no-deps --constraint requirements/test.txt --wheel-dir /wheels .

FROM python:3.11-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    --mount=type=bind,source=requirements,target=/requirements \
    pip install --no-cache-dir --constraint /requirements/test.txt "suffice[cli,plot,parquet,skops] @ file://$(echo /wheels/*.whl)" && \
    useradd --create-home --uid 1000 somebody
ENV MPLBACKEND=agg
USER 1000
WORKDIR /data
ENTRYPOINT ["suffice"]
CMD ["--help"]
