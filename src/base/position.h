/* position.h - a position in a text file. */
#ifndef WEIR_BASE_POSITION_H
#define WEIR_BASE_POSITION_H

struct position { /* in the policy file; counted from 1 */
    unsigned line, column;
};

#endif
