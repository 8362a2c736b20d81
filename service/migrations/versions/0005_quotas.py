"""Quotas: whose key a run was submitted with, and what a key may ask for, where that is not the same for all."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("key_id", sa.String(16)))
    op.create_index("ix_runs_key_id_state", "runs", ["key_id", "state"])
    op.add_column("api_keys", sa.Column("max_unfinished", sa.Integer))
    op.add_column("api_keys", sa.Column("runs_per_hour", sa.Integer))


def downgrade() -> None:
    op.drop_column("api_keys", "runs_per_hour")
    op.drop_column("api_keys", "max_unfinished")
    op.drop_index("ix_runs_key_id_state", "runs")
    op.drop_column("runs", "key_id")
