# A broker: docker build -t barnabas . && docker run -p 127.0.0.1:9092:9092 barnabas    (docs/deploying.md)

FROM python:3.13-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
COPY . /src
RUN BARNABAS_COMPILE=required pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /src

FROM python:3.13-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    --mount=type=bind,source=constraints.txt,target=/constraints.txt \
    pip install --no-cache-dir --constraint /constraints.txt /wheels/*.whl
RUN useradd --system --uid 10001 --home-dir /var/lib/barnabas --create-home barnabas \
    && install --directory --owner barnabas /var/lib/barnabas/data
COPY deploy/server.properties /etc/barnabas/server.properties
USER barnabas
WORKDIR /var/lib/barnabas
VOLUME /var/lib/barnabas/data
EXPOSE 9092 9308
# The start may take minutes if the broker crashed: it recovers its logs first.
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --start-interval=1s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:9308/readyz', timeout=4)"]
ENTRYPOINT ["barnabas"]
CMD ["broker", "/etc/barnabas/server.properties"]
