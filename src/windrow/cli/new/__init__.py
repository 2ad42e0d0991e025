"""``windrow new``: looks at files and fills the templates of an analysis for them."""
