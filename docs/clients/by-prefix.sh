#!/bin/sh
# No configuration: the upstream's prefix is the first part of the name.
set -e
skopeo copy --src-tls-verify=false docker://127.0.0.1:5000/docker.io/library/alpine:3.20 dir:alpine
crane pull --insecure 127.0.0.1:5000/docker.io/library/alpine:3.20 alpine.tar
oras pull --plain-http 127.0.0.1:5000/ghcr.io/example/model:v1
