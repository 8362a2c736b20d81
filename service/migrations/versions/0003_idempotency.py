"""A client's own key for a run, so that a submission sent twice is one run."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("idempotency_key", sa.String(200)))
    op.create_index(op.f("ix_runs_idempotency_key"), "runs", ["idempotency_key"], unique=True)


def downgrade() -> None:
    op.drop_index(op.f("ix_runs_idempotency_key"), "runs")
    op.drop_column("runs", "idempotency_key")
