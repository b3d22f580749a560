#include "proxy/stats.h"

#define X(name, label) [name] = label,
const char *const ejection_label[EJECTION_COUNT] = {EJECTIONS(X)};
#undef X
