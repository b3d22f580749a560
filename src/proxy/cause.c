#include "proxy/cause.h"

#define X(name, status, label, text) [name] = status,
const uint16_t cause_status[CAUSE_COUNT] = {CAUSES(X)};
#undef X
#define X(name, status, label, text) [name] = label,
const char *const cause_label[CAUSE_COUNT] = {CAUSES(X)};
#undef X
#define X(name, status, label, text) [name] = text,
const char *const cause_text[CAUSE_COUNT] = {CAUSES(X)};
#undef X
