/* Numbers and sizes of memory as text. */
#include "tools.h"

#include <ctype.h>
#include <stdio.h>

static const struct {
    char letter;
    int shift;
} units[] = {{'T', 40}, {'G', 30}, {'M', 20}, {'K', 10}};
enum { UNITS = sizeof units / sizeof *units };

char *gasnett_format_number(int64_t number, char *buffer, size_t bytes, int is_memory_size) {
    if (!is_memory_size) {
        snprintf(buffer, bytes, "%" PRId64, number);
        return buffer;
    }
    for (int i = 0; i < UNITS; i++) {
        int64_t const unit = (int64_t)1 << units[i].shift;
        if (number != 0 && number % unit == 0) {
            snprintf(buffer, bytes, "%" PRId64 " %cB", number / unit, units[i].letter);
            return buffer;
        }
    }
    snprintf(buffer, bytes, "%" PRId64 " B", number);
    return buffer;
}

static const char *skip_spaces(const char *text) {
    while (isspace((unsigned char)*text)) text++;
    return text;
}

/* Bytes in the unit that `text` begins with, or `fallback` if it is at its end; `*end` is moved behind it. */
static uint64_t read_unit(const char *text, uint64_t fallback, const char **end) {
    uint64_t unit = fallback;
    char const letter = (char)toupper((unsigned char)*text);
    int found = letter == 'B';
    if (found) unit = 1;
    for (int i = 0; i < UNITS && !found; i++) {
        if (letter != units[i].letter) continue;
        unit = (uint64_t)1 << units[i].shift;
        found = 1;
    }
    if (found) {
        text++;
        if (letter != 'B' && (*text == 'i' || *text == 'I')) text++;
        if (letter != 'B' && toupper((unsigned char)*text) == 'B') text++;
    }
  *end = text;
    return unit;
}

int64_t gasnett_parse_int(const char *text, uint64_t unit) {
    const char *const start = skip_spaces(text);
    const char *const digits = start + (*start == '-' || *start == '+');
    int const base = digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X') ? 16 : 10;
    char *end = NULL;
    errno = 0;
    int64_t const whole = strtoll(start, &end, base);
    int is_good = end != start && errno == 0;
    int64_t result = whole;
    if (unit == 0) {
        is_good = is_good && *skip_spaces(end) == '\0';
    } else if (is_good || *digits == '.') {
        /* Whole numbers are read as such, since a double has only 53 bits of them. */
        int const has_fraction = base == 10 && *end == '.';
        double const number = has_fraction ? strtod(start, &end) : 0;
        const char *rest = NULL;
        uint64_t const bytes = read_unit(skip_spaces(end), unit, &rest);
        is_good = *skip_spaces(rest) == '\0';
        if (has_fraction) {
            double const product = number * (double)bytes;
            is_good = is_good && product < 9223372036854775807.0 && product > -9223372036854775807.0;
            if (is_good) result = (int64_t)product;
        } else {
            is_good = is_good && !__builtin_mul_overflow(whole, bytes, &result);
        }
    }
    if (!is_good) {
        const char *const wanted = unit == 0 ? "a whole number" : "a size of memory, such as 64KB or 1.5GB";
        gasnett_fatalerror("\"%s\" is not %s", text, wanted);
    }
    return result;
}
