/* SPDX-FileCopyrightText: 2026 The omni authors */
/* SPDX-License-Identifier: BSL-1.0 */

/* The switch in the kernel: a classifier at tc's ingress of the ports. It does with packets what detail/fabric/switch_program.h says;
 * those of control go on to omni-switch, which leases slots and writes the maps. */

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "switch_maps.h"

struct kernel_slot {
  struct bpf_spin_lock lock;
  omni_u32 reserved;
  struct omni_switch_slot slot;
};
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, OMNI_SWITCH_JOBS);
  __type(key, omni_u32);
  __type(value, struct omni_switch_job);
} jobs SEC(".maps");
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, OMNI_SWITCH_SLOTS);
  __type(key, omni_u32);
  __type(value, struct kernel_slot);
} slots SEC(".maps");
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, OMNI_SWITCH_PLACES);
  __type(key, omni_u32);
  __type(value, struct omni_switch_place);
} places SEC(".maps");
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, OMNI_SWITCH_JOBS);
  __type(key, omni_u32);
  __type(value, omni_u32);
} below SEC(".maps"); /* the job here of one of the switch above */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, OMNI_SWITCH_JOBS);
  __type(key, omni_u32);
  __type(value, omni_u64);
} last_seen SEC(".maps");
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, OMNI_SWITCH_VERDICTS);
  __type(key, omni_u32);
  __type(value, omni_u64);
} counters SEC(".maps");

const volatile struct omni_switch_constants constants = {4800, 0, 0, 0};

#define AT_IP ETH_HLEN
#define AT_UDP (AT_IP + 20)
#define AT_HEADER (AT_UDP + 8)
#define AT_BLOCKS (AT_HEADER + 64)

static __always_inline void count(omni_u32 verdict) {
  omni_u64* const n = bpf_map_lookup_elem(&counters, &verdict);
  if (n) ++*n;
}

struct frame {
  struct ethhdr eth;
  struct iphdr ip;
  struct udphdr udp;
} __attribute__((packed, aligned(2)));

/* The frame of a packet that goes to a worker. */
static __always_inline void address_frame(struct frame* f, const struct omni_switch_place* to, omni_u32 bytes) {
  __builtin_memcpy(f->eth.h_dest, to->mac, ETH_ALEN);
  __builtin_memcpy(f->eth.h_source, to->own_mac, ETH_ALEN);
  f->eth.h_proto = bpf_htons(ETH_P_IP);
  __builtin_memset(&f->ip, 0, sizeof(f->ip));
  f->ip.version = 4;
  f->ip.ihl = 5;
  f->ip.ttl = 64;
  f->ip.protocol = IPPROTO_UDP;
  f->ip.tot_len = bpf_htons((omni_u16)(28 + bytes));
  f->ip.saddr = to->own_ip;
  f->ip.daddr = to->ip;
  omni_u32 sum = 0;
  const omni_u16* const words = (const omni_u16*)((const omni_u8*)f + AT_IP);
  for (int i = 0; i < 10; ++i) sum += words[i];
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  f->ip.check = (omni_u16)~sum;
  f->udp.source = bpf_htons(constants.listen_port);
  f->udp.dest = to->port;
  f->udp.len = bpf_htons((omni_u16)(8 + bytes));
  f->udp.check = 0; /* none: the packet has sums of its own */
}
static __always_inline omni_u32 place_of(omni_u32 job, omni_u32 worker) {
  return job * OMNI_SWITCH_WORKERS + (worker & (OMNI_SWITCH_WORKERS - 1));
}
static __always_inline void send_to(struct __sk_buff* skb, omni_u32 key, omni_u32 bytes) {
  const struct omni_switch_place* const to = bpf_map_lookup_elem(&places, &key);
  if (!to || !to->port_index) return;
  struct frame f;
  address_frame(&f, to, bytes);
  const omni_u32 out = to->port_index;
  if (bpf_skb_store_bytes(skb, 0, &f, sizeof(f), 0) == 0) bpf_clone_redirect(skb, out, 0);
}

/* Functions of their own, which are not static: the verifier looks at each once, whatever has gone before. */

/* The check of the packet: whether it is whole, or, of one that is made here, that it is. */
__attribute__((noinline)) int check(struct __sk_buff* skb, struct omni_switch_header* h, omni_u32 pairs, omni_u32 is_made) {
  void* const data = (void*)(long)skb->data;
  void* const end = (void*)(long)skb->data_end;
  if (!h || pairs > OMNI_SWITCH_PAIRS / OMNI_SWITCH_LANES || data + AT_BLOCKS > end) return 0;
  const struct omni_switch_sums s = omni_switch_sums_of(h, data + AT_BLOCKS, end, pairs);
  if (!is_made) return omni_switch_is_sealed(h, &s);
  omni_switch_seal(h, &s);
  __builtin_memcpy(data + AT_HEADER, h, sizeof(*h));
  return 1;
}
/* Takes it into its slot: the verdict. */
__attribute__((noinline)) int take(struct __sk_buff* skb, const struct omni_switch_header* h, omni_u32 slot_index, omni_u32 job_index) {
  void* const data = (void*)(long)skb->data;
  void* const end = (void*)(long)skb->data_end;
  const struct omni_switch_job* const job = bpf_map_lookup_elem(&jobs, &job_index);
  if (!h || !job || data + AT_BLOCKS > end) return omni_switch_damaged;
  struct kernel_slot* const s = bpf_map_lookup_elem(&slots, &slot_index);
  if (!s) return omni_switch_strange;
  bpf_spin_lock(&s->lock);
  const int verdict = (int)omni_switch_take(&s->slot, h, data + AT_BLOCKS, end, job);
  bpf_spin_unlock(&s->lock);
  return verdict;
}
/* Makes it the answer: its bytes after IP and UDP, or 0. The slot is not locked: whoever waits for this result keeps the next but one
 * round from beginning, and nobody else looks at what says that it is of this one. */
__attribute__((noinline)) int answer(struct __sk_buff* skb, struct omni_switch_header* h, omni_u32 slot_index, omni_u32 job_index,
                                     omni_u32 verdict) {
  const struct omni_switch_job* const job = bpf_map_lookup_elem(&jobs, &job_index);
  if (!h || !job) return 0;
  struct kernel_slot* const s = bpf_map_lookup_elem(&slots, &slot_index);
  if (!s) return 0;
  const omni_u32 lanes = verdict == omni_switch_tell ? 0 : s->slot.version[h->round & 1].lanes & 0xff;
  const omni_u32 bytes = 64 + 8 * (job->pairs & 0xff) * omni_switch_count(lanes);
  if (bpf_skb_change_tail(skb, AT_HEADER + bytes, 0) < 0 || bpf_skb_pull_data(skb, AT_HEADER + bytes) < 0) return 0;
  void* const data = (void*)(long)skb->data;
  void* const end = (void*)(long)skb->data_end;
  if (data + AT_BLOCKS > end) return 0;
  omni_switch_reply(&s->slot, h, data + AT_BLOCKS, end, job, (omni_u16)job_index, verdict);
  if (h->lanes != lanes) return 0;
  return (int)bytes;
}

SEC("tc")
int omni_switch(struct __sk_buff* skb) {
  if (skb->len < AT_BLOCKS || skb->len > AT_BLOCKS + 8 * OMNI_SWITCH_PAIRS) return TC_ACT_OK;
  if (bpf_skb_pull_data(skb, skb->len) < 0) return TC_ACT_OK;
  void* data = (void*)(long)skb->data;
  void* end = (void*)(long)skb->data_end;
  if (data + AT_BLOCKS > end) return TC_ACT_OK;
  const struct ethhdr* const eth = data;
  const struct iphdr* const ip = data + AT_IP;
  const struct udphdr* const udp = data + AT_UDP;
  if (eth->h_proto != bpf_htons(ETH_P_IP) || ip->ihl != 5 || ip->protocol != IPPROTO_UDP || udp->dest != bpf_htons(constants.listen_port) ||
      ip->frag_off & bpf_htons(0x3fff) || (constants.listen_ip && ip->daddr != constants.listen_ip))
    return TC_ACT_OK; /* also on its way to another switch */
  struct omni_switch_header h;
  __builtin_memcpy(&h, data + AT_HEADER, sizeof(h));
  if (h.magic != OMNI_SWITCH_MAGIC || h.job >= OMNI_SWITCH_JOBS) {
    if (h.kind >= omni_switch_open) return TC_ACT_OK;
    count(omni_switch_strange);
    return TC_ACT_SHOT;
  }
  const omni_u64 address = (omni_u64)bpf_ntohl(ip->saddr) << 16 | bpf_ntohs(udp->source);
  omni_u32 job_index = h.job;
  if (omni_switch_comes_down(&h)) {
    const omni_u32* const here = bpf_map_lookup_elem(&below, &job_index);
    job_index = here ? *here : 0;
  }
  const struct omni_switch_job* const job = bpf_map_lookup_elem(&jobs, &job_index);
  if (!job) return TC_ACT_SHOT;
  if (h.kind >= omni_switch_open) {
    /* Only here it is known where a worker is, and where the switch above. Nobody takes the place of another. */
    const omni_u32 worker = h.worker & (OMNI_SWITCH_WORKERS - 1);
    const int from_above = address == constants.above_address;
    if (from_above || (h.kind == omni_switch_join && job->key && h.key == job->key && h.worker < job->workers &&
                       h.worker < OMNI_SWITCH_WORKERS && (job->address[worker] == 0 || job->address[worker] == address))) {
      struct omni_switch_place place;
      __builtin_memset(&place, 0, sizeof(place));
      place.port_index = skb->ifindex;
      place.ip = ip->saddr;
      place.own_ip = ip->daddr;
      place.port = udp->source;
      __builtin_memcpy(place.mac, eth->h_source, ETH_ALEN);
      __builtin_memcpy(place.own_mac, eth->h_dest, ETH_ALEN);
      const omni_u32 key = from_above ? OMNI_SWITCH_PLACE_ABOVE : place_of(job_index, worker);
      bpf_map_update_elem(&places, &key, &place, BPF_ANY);
    }
    return TC_ACT_OK;
  }
  const omni_u32 pairs = job->pairs, workers = job->workers;
  if (pairs == 0 || pairs > OMNI_SWITCH_PAIRS / OMNI_SWITCH_LANES || !omni_switch_is_ours(&h, job, address)) {
    count(omni_switch_strange);
    return TC_ACT_SHOT;
  }
  if (skb->len != AT_BLOCKS + 8 * pairs * omni_switch_count(h.lanes) || !check(skb, &h, pairs, 0)) {
    count(omni_switch_damaged);
    return TC_ACT_SHOT;
  }
  const omni_u64 now = bpf_ktime_get_ns();
  bpf_map_update_elem(&last_seen, &job_index, &now, BPF_ANY);
  const omni_u32 slot_index = job->first_slot + h.slot;
  const int verdict = take(skb, &h, slot_index, job_index);
  count((omni_u32)verdict);
  if (verdict == omni_switch_absorb || (verdict >= omni_switch_damaged)) return TC_ACT_SHOT;
  const int bytes = answer(skb, &h, slot_index, job_index, (omni_u32)verdict);
  if (bytes <= 0 || !check(skb, &h, pairs, 1)) return TC_ACT_SHOT;
  if (verdict != omni_switch_spread) {
    send_to(skb, verdict == omni_switch_raise ? OMNI_SWITCH_PLACE_ABOVE : place_of(job_index, h.worker), (omni_u32)bytes);
    return TC_ACT_SHOT;
  }
  for (omni_u32 w = 0; w < OMNI_SWITCH_WORKERS; ++w) {
    if (w >= workers) break;
    send_to(skb, place_of(job_index, w), (omni_u32)bytes);
  }
  return TC_ACT_SHOT;
}

char switch_license[] SEC("license") = "GPL"; /* what the verifier wants of a program that uses such helpers */
