# A small image with dslint alone: docker run --rm -v "$PWD:/src" dslint
FROM python:3.12-slim AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY dslint dslint
COPY schemas schemas
RUN pip install --no-cache-dir --no-compile --prefix=/install .

FROM python:3.12-slim
COPY --from=build /install /usr/local
# Files of the project belong to whoever runs the container.
ENV DSLINT_CACHE_DIR=/tmp/dslint
WORKDIR /src
ENTRYPOINT ["dslint"]
