#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#include "server/metrics.h"

Test(metrics, counts_by_route_and_status)
{
    struct metrics *m = metrics_new();
    cr_assert_neq(m, NULL);
    metrics_count(m, ROUTE_BLOB, 206, 1000);
    metrics_count(m, ROUTE_BLOB, 206, 24);
    metrics_count(m, ROUTE_BLOB, 404, 10);
    metrics_count(m, ROUTE_MANIFEST, 200, 7);
    metrics_count(m, ROUTE_UNKNOWN, 0, 0);
    metrics_count(m, (enum route_kind)99, 700, 0);
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    metrics_write_requests(m, &b);
    const char *text = strbuf_str(&b);
    cr_expect(strstr(text, "weighbridge_requests_total{route=\"blob\",status=\"206\"} 2\n"));
    cr_expect(strstr(text, "weighbridge_requests_total{route=\"blob\",status=\"404\"} 1\n"));
    cr_expect(strstr(text, "weighbridge_requests_total{route=\"manifest\",status=\"200\"} 1\n"));
    cr_expect(strstr(text, "weighbridge_requests_total{route=\"unknown\",status=\"599\"} 2\n"),
              "%s", text);
    cr_expect(strstr(text, "weighbridge_response_bytes_total{route=\"blob\"} 1034\n"));
    cr_expect(strstr(text, "# TYPE weighbridge_requests_total counter\n"));
    metrics_free(m);
}

Test(metrics, labels_are_escaped)
{
    _cleanup_strbuf_ struct strbuf labels = STRBUF_INIT, to = STRBUF_INIT;
    metrics_label(&labels, "upstream", "a\"b\\c\nd");
    metrics_label(&labels, "kind", "oci");
    metrics_sample(&to, "x_total", strbuf_str(&labels), 3);
    cr_expect_str_eq(strbuf_str(&to), "x_total{upstream=\"a\\\"b\\\\c\\nd\",kind=\"oci\"} 3\n");
}

static void *count_many(void *arg)
{
    for (int i = 0; i < 10000; i++)
        metrics_count(arg, ROUTE_BLOB, 200, 2);
    return NULL;
}

Test(metrics, threads_lose_nothing)
{
    struct metrics *m = metrics_new();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, count_many, m), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    metrics_write_requests(m, &b);
    cr_expect(strstr(strbuf_str(&b),
                     "weighbridge_requests_total{route=\"blob\",status=\"200\"} 40000\n"));
    cr_expect(strstr(strbuf_str(&b), "weighbridge_response_bytes_total{route=\"blob\"} 80000\n"));
    metrics_free(m);
}
