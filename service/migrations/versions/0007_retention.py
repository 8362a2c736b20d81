"""Retention: runs are found by when they ended, and know whether their recordings are still there."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("recordings", sa.Boolean, nullable=False, server_default=sa.true()))
    op.create_index("ix_runs_finished_at", "runs", ["finished_at"])


def downgrade() -> None:
    op.drop_index("ix_runs_finished_at", "runs")
    op.drop_column("runs", "recordings")
