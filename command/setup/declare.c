#include "setup/declare.h"

#include "common/output.h"

#include "topology/difference.h"
#include "worker/wire/declaration.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bh_status take_step(connection *broker, const bh_declaration *step)
{
    bh__declaration declaration;
    if (!bh__declaration_init(&declaration, step))
        must(NULL);
    bh_status status = connection_call(broker, CHANNEL_CALL, declaration.method, &declaration.arguments,
                                       declaration.reply, 0, declaration.what);
    bh__declaration_free(&declaration);
    return status;
}

/* Takes the steps. A step of a rung that is skipped counts as accepted. */
static bh_status take_steps(connection *broker, bh_declaring *steps, int skips_rungs)
{
    bh_status opened = connection_open_channel(broker, CHANNEL_CALL);
    bh_declaration step;
    while (opened == BH_OK && bh_declaring_next(steps, &step)) {
        if (skips_rungs && step.rung_ms > 0)
            continue;
        bh_status status = take_step(broker, &step);
        if (status == BH_OK)
            continue;
        if (!broker->code)
            return status;
        bh_declaring_refuse(steps, broker->code, bh_str(broker->text));
        if (bh__link_is_broken(&broker->link))
            return bh_declaring_status(steps) == BH_ERR_BROKER ? BH_OK : status;
        opened = connection_open_channel(broker, CHANNEL_CALL);
    }
    return opened == BH_OK ? connection_close_channel(broker, CHANNEL_CALL) : opened;
}

static bh_status declare(connection *broker, bh_topology *topology, bh_mode mode, int skips_rungs, bh__report *report)
{
    bh_declaring *steps = NULL;
    bh_status status = bh_topology_check_broker(topology, bh_str(broker->link.product), bh_str(broker->link.version));
    if (status != BH_OK)
        return bh__report_set(report, status, "%s", bh_topology_error(topology).data);
    if (bh_declaring_new(&steps, topology, BH_DIALECT_COMMAND) != BH_OK ||
        bh_declaring_set_makes_rungs(steps, 1) != BH_OK || bh_declaring_begin(steps, mode, 0) != BH_OK)
        must(NULL);
    status = take_steps(broker, steps, skips_rungs);
    if (status == BH_OK)
        status = bh__report_set(report, bh_declaring_status(steps), "%s", bh_declaring_error(steps).data);
    else
        bh__report_set(report, status, "%s", bh__report_text(&broker->problem).data);
    bh_declaring_free(steps);
    return status;
}

bh_status declare_topology(connection *broker, bh_topology *topology, bh__report *report)
{
    return declare(broker, topology, BH_MODE_CREATE, 0, report);
}

bh_status declare_verify(connection *broker, bh_topology *topology, bh__report *report)
{
    return declare(broker, topology, BH_MODE_VERIFY, 0, report);
}

bh_status declare_verify_fixed(connection *broker, bh_topology *topology, bh__report *report)
{
    return declare(broker, topology, BH_MODE_VERIFY, 1, report);
}

bh_status declare_compare(connection *broker, const bh_topology *topology, const char *queue)
{
    bh_declaring *steps = NULL;
    if (bh_declaring_new(&steps, topology, BH_DIALECT_COMMAND) != BH_OK ||
        bh_declaring_begin(steps, BH_MODE_CREATE, 0) != BH_OK)
        must(NULL);
    bh_status status = connection_open_channel(broker, CHANNEL_CALL);
    bh_declaration step;
    while (status == BH_OK && bh_declaring_next(steps, &step))
        if (step.kind == BH_DECLARE_QUEUE && strcmp(step.name.data, queue) == 0)
            status = take_step(broker, &step);
    bh_declaring_free(steps);
    return status == BH_OK ? connection_close_channel(broker, CHANNEL_CALL) : status;
}

int declare_found_limit(const connection *broker, bh_status status, int64_t *limit)
{
    bh__difference found = bh__read_difference(bh_str(broker->text));
    char text[32];
    *limit = 0;
    if (status != BH_ERR_CLASH || !bh__same(found.argument, bh_str("x-delivery-limit")))
        return 0;
    if (bh__same(found.current, bh_str("none")))
        return connection_is_at_least(broker, 4, 0);
    bh_bytes value = bh__bare_value(found.current);
    snprintf(text, sizeof text, "%.*s", value.size < sizeof text ? (int)value.size : 0, value.data);
    *limit = found.is_cut ? 0 : strtoll(text, NULL, 10);
    return *limit >= 0 && *limit < UNREACHED_LIMIT; /* below 0: unlimited */
}
