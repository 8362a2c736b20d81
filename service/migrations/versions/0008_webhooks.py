"""Webhooks: whom to tell that a run has ended, and what of that has not arrived yet."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("webhook", sa.Text))
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("run_id", sa.String(36), sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due_at", sa.Double),
        sa.Column("delivered_at", sa.DateTime(timezone=True)),
        sa.Column("error", sa.Text),
    )
    op.create_index("ix_deliveries_due_at", "deliveries", ["due_at"])
    op.create_index("ix_deliveries_run_id", "deliveries", ["run_id"])


def downgrade() -> None:
    op.drop_table("deliveries")
    op.drop_column("runs", "webhook")
