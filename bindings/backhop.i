/*
 * What Python, Ruby and Node see of the core: one table of declarations, in the order of the pipeline. The headers in
 * core/include/backhop/ are its manual.
 *
 * A line in an %extend block without a body calls the C function of the block's name and its own: Policy.set_kind is
 * bh_policy_set_kind. bh_<noun>_new gives the status and the object; the object frees itself. Not here: bh_worker_run,
 * which blocks and calls back, and the relay, which only the command runs. Enumerators have the values that the C compiler knows.
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

/* --- version, status --------------------------------------------------------------------------------------------- */

const char *bh_version(void);

typedef int bh_status;

bh_bytes bh_status_name(int status);
bh_bytes bh_status_text(int status);

%typemap(in, numinputs=0) char *duration_room (char room[BH_DURATION_ROOM]) "$1 = room;"
bh_bytes bh_duration_text(int64_t span_ms, char *duration_room);
int64_t bh_duration_ms(bh_bytes text);
%include "decisions.i"
%include "running.i"

#ifdef SWIGPYTHON
%include "python.i"
#endif
