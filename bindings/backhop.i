/*
 * The functions of the core that Python, Ruby and Node see: one table of declarations, in the order
 * of the pipeline. The headers in core/include/backhop/ are its manual.
 *
 * A line without a body in an %extend block calls a C function: the block's name and the line's
 * name make its name. So Policy.check is bh_policy_check. bh_<noun>_new gives the status and the
 * object; the object frees itself. bh_worker_run is left out, because it blocks and calls back. The
 * relay is left out, because only the command runs one. Enumerators have no values here: the C
 * compiler knows them.
 */
%module backhop

%{
#include <backhop/adapter.h>
#include <backhop/adapter/duration.h>
#include <backhop/adapter/event.h>
%}

%include <stdint.i>
%include "bytes.i"

%nodefaultctor;
%nodefaultdtor;

/* --- version, status -------------------------------------------------------------------------- */

const char *bh_version(void);

typedef int bh_status;

bh_bytes bh_status_name(int status);
bh_bytes bh_status_text(int status);

%typemap(in, numinputs=0) char *duration_room (char room[BH_DURATION_ROOM]) "$1 = room;"
bh_bytes bh_duration_text(int64_t span_ms, char *duration_room);
int64_t bh_duration_ms(bh_bytes text);
%include "decisions.i"
%include "breaker.i"
%include "running.i"

#ifdef SWIGPYTHON
%include "python.i"
#endif
