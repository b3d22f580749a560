/* call_result.h - from the decisions of a call's ops to its result; see call_decision.h. */
#ifndef WEIR_LIMIT_CALL_RESULT_H
#define WEIR_LIMIT_CALL_RESULT_H

#include "limit/call_decision.h"

/* An op of a call was decided. With the last one, concludes the call and calls decided(). */
void call_op_decided(struct decision_request *decision_request);
/* Sets the call's decision from those of its ops. */
void call_conclude(struct call_request *call);
/* No memory: fails closed, without results. */
void call_refuse(struct call_request *call);

#endif
