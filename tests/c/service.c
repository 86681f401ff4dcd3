/* A library that uses libc, as a name service does: in a program with libc inside it, it brings
   libc.so. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static __thread int calls __attribute__((tls_model("initial-exec"))) = 500;

/* Letters in what was allocated, and the calls before; -1 if libc did not do as it should. */
int service_call(void)
{
    int before = errno;
    errno = EDOM;
    char *text = strdup("4 name services!");
    if (text == NULL)
        return -1;
    int letters = 0;
    for (char *c = text; *c != 0; c++)
        letters += isalpha((unsigned char)toupper((unsigned char)*c)) != 0;
    free(text);
    int right = letters == 12 && errno == EDOM;
    errno = before;
    return right ? calls++ : -1;
}

/* 1 if the caller starts as a thread does: with the program's locale, and no error. Leaves both
   changed. */
int service_starts_clean(void)
{
    locale_t own = newlocale(LC_ALL_MASK, "C", NULL);
    if (own == NULL)
        return -1;
    int clean = errno == 0 && uselocale(NULL) == LC_GLOBAL_LOCALE;
    uselocale(own);
    errno = EDOM;
    return clean;
}

/* What libc's malloc has given out, in KiB. */
int service_memory(void)
{
    return (int)(mallinfo2().uordblks >> 10);
}
