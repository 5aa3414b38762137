/* docker's config.json: what it holds for a few hosts, and that the same login is found under
 * either of Docker Hub's names. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "upstream/oci_credentials.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static bool same(const char *x, const char *y)
{
    return x && y ? strcmp(x, y) == 0 : x == y;
}

static int find(const uint8_t *data, size_t size, const char *host, struct oci_credential *c)
{
    struct error err = ERROR_INIT;
    int rc = oci_docker_config_find((const char *)data, size, host, c, &err);
    bool found = c->username || c->password || c->identity_token || c->registry_token;
    require(rc == (found ? 1 : rc < 0 ? -1 : 0));
    require(!c->username == !c->password);
    require(rc >= 0 || err.code == ERR_INVALID || err.code == ERR_UNSUPPORTED);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct oci_credential a = {0}, b = {0}, other = {0};
    int rc = find(data, size, "docker.io", &a);
    require(rc == find(data, size, "registry-1.docker.io", &b));
    require(same(a.username, b.username) && same(a.password, b.password));
    require(same(a.identity_token, b.identity_token) && same(a.registry_token, b.registry_token));
    find(data, size, "quay.io", &other);
    oci_credential_done(&a);
    oci_credential_done(&b);
    oci_credential_done(&other);
    return 0;
}
