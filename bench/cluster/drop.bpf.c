/* SPDX-FileCopyrightText: 2026 The omni authors */
/* SPDX-License-Identifier: BSL-1.0 */

/* A classifier that loses UDP packets at random: OMNI_DROP of 2^32. */

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

SEC("tc")
int lose(struct __sk_buff* skb) {
  unsigned char protocol = 0;
  if (skb->protocol != bpf_htons(ETH_P_IP)) return TC_ACT_OK;
  if (bpf_skb_load_bytes(skb, ETH_HLEN + offsetof(struct iphdr, protocol), &protocol, 1) < 0) return TC_ACT_OK;
  return protocol == IPPROTO_UDP && bpf_get_prandom_u32() < OMNI_DROP ? TC_ACT_SHOT : TC_ACT_OK;
}
