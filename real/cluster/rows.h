/* Rows of an instance on their way to the front, as bytes. */
#ifndef TANDEM_REAL_CLUSTER_ROWS_H
#define TANDEM_REAL_CLUSTER_ROWS_H

#include "run/run_record.h"
#include "real/control/frame.h"
#include "real/device/device.h"

#define STEP_ROW_BYTES 40
#define TRANSFER_ROW_BYTES 56
#define TOKEN_ROW_BYTES 12

/* The node that a row is of is the connection's. */
void step_row_write(struct frame_writer *writer, const struct step_row *row);
bool step_row_read(const struct frame *frame, uint16_t node, struct step_row *row);
void transfer_row_write(struct frame_writer *writer, const struct transfer_row *row);
bool transfer_row_read(const struct frame *frame, uint16_t node, struct transfer_row *row);

void token_row_write(struct frame_writer *writer, const struct device_token *token);
void token_row_read(struct frame_reader *reader, struct device_token *token); /* sequence: 0 */

#endif
