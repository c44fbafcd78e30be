/* Memory of devices that no NIC here takes: pieces go through pinned memory of the host.
 *
 * A sender copies the pieces of a layer to the host when the layer counter passes it, in batches, and posts each write
 * from there when its batch is done: one batch is on the wire while the next is being copied. The pinned buffer is cut
 * into slots, one a write in flight; a peer that stands still keeps at most half of them.
 *
 * A receiver's writes land in a copy of each rank's region in pinned memory, as large as the region, so that a writer
 * need not know. When the count of an immediate is reached, whoever knows the pages has them copied to the device
 * (stage_land), whole pages, and the bytes are the device's when that is done.
 */
#ifndef TANDEM_REAL_FABRIC_STAGE_H
#define TANDEM_REAL_FABRIC_STAGE_H

#include "real/fabric/fabric_internal.h"
#include "host/user_error.h"

/* Says which completions are of staged writes: the rest of the tag is a slot, counted over all ranks. */
#define STAGE_TAG (UINT32_C(1) << 31)

struct stages;

/* Makes the buffers of all ranks; false with a sentence. */
bool stages_make(struct fabric *fabric, struct user_error *error);
void stages_free(struct fabric *fabric);

/* What NICs write to, and what they read from: the rank's pinned buffer. */
void *stage_target(const struct fabric *fabric, uint32_t rank);
void *stage_buffer(const struct fabric *fabric, uint32_t rank, size_t *bytes);

/* Takes a piece of a ticket. RAIL_AGAIN: there is no slot for it now. */
enum rail_result stage_take(struct fabric *fabric, struct peer *peer, uint32_t ticket, const struct piece *piece);

/* Submits what has been taken. */
void stage_flush(struct fabric *fabric);

/* Posts what has been copied, and notes landings that are done. */
void stage_poll(struct fabric *fabric, bool *progress);

/* A staged write has ended: frees its slot. Returns the ticket. */
uint32_t stage_completed(struct fabric *fabric, uint32_t tag);

/* Nothing that was taken for the peer is posted any more, also when a new one takes its place. */
void stage_forget(struct fabric *fabric, uint32_t node);

void stage_land(struct fabric *fabric, uint32_t immediate, uint64_t count, const struct fabric_landing *where);

/* Waits until the device no longer writes for the immediate. */
void stage_land_stop(struct fabric *fabric, uint32_t immediate);
bool stage_landed(struct fabric *fabric, uint32_t *immediate, uint64_t *count);
bool stage_landing(const struct fabric *fabric);

#endif
