/* The environment of this process, and telling the user what is read from it. */
#include "tools.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

char *gasnett_getenv(const char *key) {
    return getenv(key);
}

void gasnett_setenv(const char *key, const char *value) {
    if (setenv(key, value, 1) != 0) gasnett_fatalerror("setenv(%s): %s", key, strerror(errno));
}

void gasnett_unsetenv(const char *key) {
    if (unsetenv(key) != 0) gasnett_fatalerror("unsetenv(%s): %s", key, strerror(errno));
}

/* Whether a text means yes (1), no (0), or neither (-1). */
static int yes_or_no(const char *text) {
    static const char *const yes[] = {"y", "yes", "1"};
    static const char *const no[] = {"n", "no", "0"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        if (strcasecmp(text, yes[i]) == 0) return 1;
        if (strcasecmp(text, no[i]) == 0) return 0;
    }
    return -1;
}

/* As GASNet does: set to anything but a no. */
int gasnett_verboseenv(void) {
    const char *value = getenv("GASNET_VERBOSEENV");
    return value != NULL && yes_or_no(value) != 0;
}

/* Keys that the user has been told of. A key is told once; when the table is full, further ones are told every time. */
static int is_news(const char *key) {
    enum { KEYS_MAX = 256 };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char *told[KEYS_MAX];
    static int count = 0;
    int news = 1;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count && news; i++) news = strcmp(told[i], key) != 0;
    if (news && count < KEYS_MAX && (told[count] = strdup(key)) != NULL) count++;
    pthread_mutex_unlock(&lock);
    return news;
}

void gasnett_envstr_display(const char *key, const char *value, int is_default) {
    if (!gasnett_verboseenv() || !is_news(key)) return;
    const char *shown = value == NULL ? "*not set*" : *value == '\0' ? "*empty*" : value;
    fprintf(stderr, "ENV parameter: %s = %-20s%s\n", key, shown, is_default ? " (default)" : "");
    fflush(stderr);
}

void gasnett_envint_display(const char *key, int64_t value, int is_default, int is_memory_size) {
    char text[64];
    gasnett_envstr_display(key, gasnett_format_number(value, text, sizeof text, is_memory_size), is_default);
}

void gasnett_envdbl_display(const char *key, double value, int is_default) {
    char text[64];
    snprintf(text, sizeof text, "%g", value);
    gasnett_envstr_display(key, text, is_default);
}

char *gasnett_getenv_withdefault(const char *key, const char *fallback) {
    char *value = gasnett_getenv(key);
    int const is_default = value == NULL;
    if (is_default) value = (char *)(uintptr_t)fallback;
    gasnett_envstr_display(key, value, is_default);
    return value;
}

int gasnett_getenv_yesno_withdefault(const char *key, int fallback) {
    const char *value = gasnett_getenv(key);
    int result = fallback != 0;
    if (value != NULL) result = yes_or_no(value);
    if (result < 0) gasnett_fatalerror("environment variable %s is \"%s\"; it is YES or NO", key, value);
    gasnett_envstr_display(key, result ? "YES" : "NO", value == NULL);
    return result;
}

int64_t gasnett_getenv_int_withdefault(const char *key, int64_t fallback, uint64_t unit) {
    const char *value = gasnett_getenv(key);
    int64_t result = fallback;
    if (value != NULL) result = gasnett_parse_int(value, unit);
    gasnett_envint_display(key, result, value == NULL, unit != 0);
    return result;
}

double gasnett_getenv_dbl_withdefault(const char *key, double fallback) {
    const char *value = gasnett_getenv(key);
    double result = fallback;
    if (value != NULL) {
        char *end = NULL;
        result = strtod(value, &end);
        if (end == value || *end != '\0') {
            gasnett_fatalerror("environment variable %s is \"%s\", not a number", key, value);
        }
    }
    gasnett_envdbl_display(key, result, value == NULL);
    return result;
}
