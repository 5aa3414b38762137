#!/bin/sh
# With "default_upstream": "docker.io" names are what they are at Docker Hub.
set -e
skopeo copy --src-tls-verify=false docker://127.0.0.1:5000/library/alpine:3.20 dir:alpine
crane pull --insecure 127.0.0.1:5000/library/alpine:3.20 alpine.tar
oras pull --plain-http 127.0.0.1:5000/example/model:v1
