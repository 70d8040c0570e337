# syntax=docker/dockerfile:1
# The images of hapsnap: targets compiler, pusher, haproxy, waf and hapsnap. HAPROXY_LINE is the line of
# HAProxy of the fleet; the compiler's image has the same one, as what checks a
# configuration has to be what runs it.
#
#   docker build --target compiler --build-arg VERSION=1.2.3 --tag compiler:1.2.3-haproxy3.2 .
ARG GO_VERSION=1.26
ARG HAPROXY_LINE=3.2
ARG API_LINE=3.4

FROM --platform=$BUILDPLATFORM docker.io/library/golang:${GO_VERSION} AS build
ARG TARGETOS TARGETARCH VERSION=unknown
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
	CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
	-ldflags "-s -w -X github.com/hapsnap/hapsnap/internal/process.version=$VERSION" -o /out/ ./cmd/...
# The agent without a file system: uploads that it inspects never reach a disk.
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
	CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -tags no_fs_access \
	-ldflags "-s -w -X github.com/hapsnap/hapsnap/internal/process.version=$VERSION" -o /out/ ./cmd/waf

# HAProxy with the libraries that it is linked with, and no shell. libgcc_s is loaded by
# glibc when a thread ends, which is an abort without it.
FROM docker.io/haproxytech/haproxy-debian:${HAPROXY_LINE} AS vendor
RUN set -eu; mkdir -p /root-of-haproxy; install -d -m 1777 /root-of-haproxy/tmp; \
	binary="$(readlink -f "$(command -v haproxy)")"; \
	install -D -m 0755 "$binary" /root-of-haproxy/usr/local/sbin/haproxy; \
	{ ldd "$binary" | sed -n 's,^[^/]*\(/[^ ]*\) .*,\1,p'; /sbin/ldconfig -p | sed -n 's,.*libgcc_s.so.1 .*=> ,,p'; } | while read -r library; do install -D -m 0755 "$library" "/root-of-haproxy$library"; done

# The Dataplane API of a later line, with the libraries that it is linked with, if any.
FROM docker.io/haproxytech/haproxy-debian:${API_LINE} AS api
RUN set -eu; \
	binary="$(readlink -f "$(command -v dataplaneapi)")"; \
	install -D -m 0755 "$binary" /root-of-api/usr/local/bin/dataplaneapi; \
	{ ldd "$binary" 2>&1 || :; } | sed -n 's,^[^/]*\(/[^ ]*\) .*,\1,p' | while read -r library; do install -D -m 0755 "$library" "/root-of-api$library"; done

FROM scratch AS compiler
ARG VERSION=unknown REVISION=unknown HAPROXY_LINE
LABEL org.opencontainers.image.title="hapsnap compiler" \
	org.opencontainers.image.source="https://github.com/hapsnap/hapsnap" \
	org.opencontainers.image.licenses="Apache-2.0" \
	org.opencontainers.image.version="$VERSION" \
	org.opencontainers.image.revision="$REVISION" \
	dev.hapsnap.haproxy.line="$HAPROXY_LINE"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=vendor /root-of-haproxy /
COPY --from=build /out/compiler /usr/local/bin/compiler
ENV PATH=/usr/local/bin:/usr/local/sbin
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/compiler"]

FROM scratch AS pusher
ARG VERSION=unknown REVISION=unknown
LABEL org.opencontainers.image.title="hapsnap pusher" \
	org.opencontainers.image.source="https://github.com/hapsnap/hapsnap" \
	org.opencontainers.image.licenses="Apache-2.0" \
	org.opencontainers.image.version="$VERSION" \
	org.opencontainers.image.revision="$REVISION"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/pusher /usr/local/bin/pusher
# What starts the containers of an instance: the chart takes it from this image.
COPY --from=build /out/bootstrap /usr/local/bin/bootstrap
ENV PATH=/usr/local/bin
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/pusher"]

# The agent that inspects requests. It reads and writes no file but its socket.
FROM scratch AS waf
ARG VERSION=unknown REVISION=unknown
LABEL org.opencontainers.image.title="hapsnap waf" \
	org.opencontainers.image.source="https://github.com/hapsnap/hapsnap" \
	org.opencontainers.image.licenses="Apache-2.0" \
	org.opencontainers.image.version="$VERSION" \
	org.opencontainers.image.revision="$REVISION"
COPY --from=build /out/waf /usr/local/bin/waf
ENV PATH=/usr/local/bin
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/waf"]
CMD ["run"]

# What people type, for CI and for a shell in a cluster. It has the haproxy that render asks.
FROM scratch AS hapsnap
ARG VERSION=unknown REVISION=unknown HAPROXY_LINE
LABEL org.opencontainers.image.title="hapsnap" \
	org.opencontainers.image.source="https://github.com/hapsnap/hapsnap" \
	org.opencontainers.image.licenses="Apache-2.0" \
	org.opencontainers.image.version="$VERSION" \
	org.opencontainers.image.revision="$REVISION" \
	dev.hapsnap.haproxy.line="$HAPROXY_LINE"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=vendor /root-of-haproxy /
COPY --from=build /out/hapsnap /usr/local/bin/hapsnap
ENV PATH=/usr/local/bin:/usr/local/sbin
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/hapsnap"]

# The vendor's HAProxy with the Dataplane API of a later line, which changes addresses
# without a post of the whole. The chart runs the two in a container each, through bootstrap.
FROM scratch AS haproxy
ARG VERSION=unknown REVISION=unknown HAPROXY_LINE API_LINE
LABEL org.opencontainers.image.title="hapsnap haproxy" \
	org.opencontainers.image.source="https://github.com/hapsnap/hapsnap" \
	org.opencontainers.image.version="$VERSION" \
	org.opencontainers.image.revision="$REVISION" \
	dev.hapsnap.haproxy.line="$HAPROXY_LINE" \
	dev.hapsnap.dataplaneapi.line="$API_LINE"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
# The API's first: where both need a library, HAProxy's is the newer build's own.
COPY --from=api /root-of-api /
COPY --from=vendor /root-of-haproxy /
COPY --from=build /out/bootstrap /usr/local/bin/bootstrap
ENV PATH=/usr/local/bin:/usr/local/sbin
USER 65532:65532
STOPSIGNAL SIGUSR1
ENTRYPOINT ["/usr/local/bin/bootstrap"]
CMD ["haproxy"]
