/* status.c - reason phrases, and the date of weir's own responses. */
#include "http/rewrite.h"

/* Reason phrases of RFC 9110 section 15. Others: 103: RFC 8297; 207, 423, 424, 507: RFC 4918; 208,
 * 508: RFC 5842; 226: RFC 3229; 425: RFC 8470; 428, 429, 431, 511: RFC 6585; 451: RFC 7725. */
static const char *const reasons[600] = {
    [100] = "Continue",
    [101] = "Switching Protocols",
    [103] = "Early Hints",
    [200] = "OK",
    [201] = "Created",
    [202] = "Accepted",
    [203] = "Non-Authoritative Information",
    [204] = "No Content",
    [205] = "Reset Content",
    [206] = "Partial Content",
    [207] = "Multi-Status",
    [208] = "Already Reported",
    [226] = "IM Used",
    [300] = "Multiple Choices",
    [301] = "Moved Permanently",
    [302] = "Found",
    [303] = "See Other",
    [304] = "Not Modified",
    [305] = "Use Proxy",
    [307] = "Temporary Redirect",
    [308] = "Permanent Redirect",
    [400] = "Bad Request",
    [401] = "Unauthorized",
    [402] = "Payment Required",
    [403] = "Forbidden",
    [404] = "Not Found",
    [405] = "Method Not Allowed",
    [406] = "Not Acceptable",
    [407] = "Proxy Authentication Required",
    [408] = "Request Timeout",
    [409] = "Conflict",
    [410] = "Gone",
    [411] = "Length Required",
    [412] = "Precondition Failed",
    [413] = "Content Too Large",
    [414] = "URI Too Long",
    [415] = "Unsupported Media Type",
    [416] = "Range Not Satisfiable",
    [417] = "Expectation Failed",
    [421] = "Misdirected Request",
    [422] = "Unprocessable Content",
    [423] = "Locked",
    [424] = "Failed Dependency",
    [425] = "Too Early",
    [426] = "Upgrade Required",
    [428] = "Precondition Required",
    [429] = "Too Many Requests",
    [431] = "Request Header Fields Too Large",
    [451] = "Unavailable For Legal Reasons",
    [500] = "Internal Server Error",
    [501] = "Not Implemented",
    [502] = "Bad Gateway",
    [503] = "Service Unavailable",
    [504] = "Gateway Timeout",
    [505] = "HTTP Version Not Supported",
    [507] = "Insufficient Storage",
    [508] = "Loop Detected",
    [511] = "Network Authentication Required",
};

const char *reason_phrase(unsigned status)
{
    return status < COUNT_OF(reasons) && reasons[status] ? reasons[status] : "";
}

struct calendar_date {
    unsigned year, month, day; /* month and day start at 1 */
};

/* Converts days since 1970-01-01 to a Gregorian date, from the year 0 on. Years start in March, so
 * that the leap day is the last day. An era is 400 years = 146,097 days. Source: H. Hinnant,
 * chrono-Compatible Low-Level Date Algorithms. */
static struct calendar_date civil_of(uint64_t days)
{
    days += 719468; /* 0000-03-01 */
    uint64_t era = days / 146097, day_of_era = days % 146097;
    uint64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    uint64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    uint64_t march_month = (5 * day_of_year + 2) / 153;
    unsigned month = (unsigned)(march_month < 10 ? march_month + 3 : march_month - 9);
    return (struct calendar_date){
        .year = (unsigned)(era * 400 + year_of_era + (month <= 2)),
        .month = month,
        .day = (unsigned)(day_of_year - (153 * march_month + 2) / 5 + 1),
    };
}

static void digits_write(char *out, unsigned digits, unsigned value)
{
    for (; digits; value /= 10)
        out[--digits] = (char)('0' + value % 10);
}

void http_date_write(char out[29], int64_t seconds)
{
    /* 9999-12-31T23:59:59Z: the format has four-digit years */
    const int64_t last = INT64_C(253402300799);
    uint64_t time = (uint64_t)(seconds < 0 ? 0 : seconds > last ? last : seconds);
    uint64_t days = time / 86400;
    unsigned second = (unsigned)(time % 86400);
    struct calendar_date date = civil_of(days);

    memcpy(out, "Thu, 01 Jan 1970 00:00:00 GMT", 29);
    memcpy(out, &"ThuFriSatSunMonTueWed"[days % 7 * 3], 3);
    digits_write(out + 5, 2, date.day);
    memcpy(out + 8, &"JanFebMarAprMayJunJulAugSepOctNovDec"[(date.month - 1) * 3], 3);
    digits_write(out + 12, 4, date.year);
    digits_write(out + 17, 2, second / 3600);
    digits_write(out + 20, 2, second / 60 % 60);
    digits_write(out + 23, 2, second % 60);
}
