/* SPDX-FileCopyrightText: 2026 The omni authors */
/* SPDX-License-Identifier: BSL-1.0 */
#pragma once

#include <omni/detail/fabric/switch_program.h>

/* What the kernel's classifier and the program that loads it have in common. */

#define OMNI_SWITCH_JOBS 64
#define OMNI_SWITCH_SLOTS 512
#define OMNI_SWITCH_VERDICTS 16
/* Of each worker of each job, then of the switch above. */
#define OMNI_SWITCH_PLACE_ABOVE (OMNI_SWITCH_JOBS * OMNI_SWITCH_WORKERS)
#define OMNI_SWITCH_PLACES (OMNI_SWITCH_PLACE_ABOVE + 1)

/* What the classifier is told when it is loaded. */
struct omni_switch_constants {
  omni_u16 listen_port, reserved;
  omni_u32 listen_ip; /* as it stands in packets; 0: any */
  omni_u64 above_address; /* IP << 16 | port; 0: there is no switch above */
};

/* Where a worker is: learnt from the packet by which it joins. Addresses as they stand in packets. */
struct omni_switch_place {
  omni_u32 port_index, ip, own_ip;
  omni_u16 port;
  omni_u8 mac[6], own_mac[6];
  omni_u16 reserved;
};
