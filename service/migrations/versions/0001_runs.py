"""The first version: runs, and the heartbeats of those who execute them."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("verdict", sa.String(16)),
        sa.Column("summary", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("strategy", sa.String(300), nullable=False),
        sa.Column("world_size", sa.Integer, nullable=False),
        sa.Column("request", sa.JSON, nullable=False),
        sa.Column("labels", sa.JSON, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("executor_id", sa.String(100)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.CheckConstraint(
            "state IN ('queued','running','finished','cancelled','errored')", name=op.f("ck_runs_state")
        ),
        sa.CheckConstraint("(state = 'finished') = (verdict IS NOT NULL)", name=op.f("ck_runs_verdict")),
    )
    op.create_index(op.f("ix_runs_state_id"), "runs", ["state", "id"])
    op.create_index(op.f("ix_runs_verdict_id"), "runs", ["verdict", "id"])
    op.create_table(
        "executors",
        sa.Column("id", sa.String(100), primary_key=True),
        sa.Column("process", sa.String(200)),
        sa.Column("slots", sa.Integer, nullable=False),
        sa.Column("beat_at", sa.Double, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("executors")
    op.drop_table("runs")
