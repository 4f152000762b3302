/* Declare: carries out on a connection what the pure core's declaring asks for. */
#ifndef BACKHOP_COMMAND_DECLARE_H
#define BACKHOP_COMMAND_DECLARE_H

#include "connection.h"
#include "setup.h"

#include <backhop/declaring.h>

/* Makes or verifies a topology; how it went, in words, is in the report. A connection that the broker closed over it is of no more use. */
bh_status declare_topology(connection *broker, bh_topology *topology, bh_mode mode, bh__report *report);

#endif
