// All events of a run as plain structs: one for each kind of line in events.jsonl.
#pragma once

#include "daemon/telemetry/checkpoint_events.h"
#include "daemon/telemetry/end_events.h"
#include "daemon/telemetry/eval_events.h"
#include "daemon/telemetry/event_record.h"
#include "daemon/telemetry/run_events.h"
#include "daemon/telemetry/update_events.h"
