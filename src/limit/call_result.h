/* call_result.h - from the decisions of a call's ops to its result; see call_decision.h. */
#ifndef WEIR_LIMIT_CALL_RESULT_H
#define WEIR_LIMIT_CALL_RESULT_H

#include "limit/call_decision.h"

/* Returns true if the decisions of the call's ops so far admit it. */
bool call_admits(struct call_request *call);
/* Sets the call's decision from those of its ops. */
void call_conclude(struct call_request *call);
/* No memory: fails closed, without results. */
void call_refuse(struct call_request *call);

#endif
