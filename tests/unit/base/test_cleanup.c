#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>

#include "base/cleanup.h"

Test(cleanup, locals_are_closed_and_freed_at_the_end_of_their_scope)
{
    int number;
    {
        _cleanup_close_ int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        _cleanup_free_ char *text = malloc(10);
        _cleanup_fclose_ FILE *none = NULL;
        cr_assert_geq(fd, 0);
        number = fd;
    }
    cr_assert_eq(fcntl(number, F_GETFD), -1, "it is closed");
}

Test(cleanup, what_is_taken_stays)
{
    int kept;
    _cleanup_free_ char *text = NULL;
    {
        _cleanup_close_ int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        _cleanup_free_ char *mine = strdup("x");
        kept = TAKE_FD(fd);
        text = TAKE_PTR(mine);
        cr_assert_eq(fd, -1);
        cr_assert_null(mine);
    }
    cr_assert_geq(fcntl(kept, F_GETFD), 0);
    cr_assert_str_eq(text, "x");
    close(kept);
}
