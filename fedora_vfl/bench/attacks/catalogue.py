"""The attacks by name: what each does, what it needs to know, and whose idea it is."""

from dataclasses import dataclass

SPLIT = "Li et al., Label leakage and protection in two-party split learning, ICLR 2022"
CLUSTERING = "Liu and Lyu, Clustering label inference attack against practical split learning, arXiv:2203.05222v1, 2022"
COMPLETION = "Fu et al., Label inference attacks against vertical federated learning, USENIX Security 2022"
INVERSION = "He, Zhang and Lee, Model inversion attacks against collaborative inference, ACSAC 2019"
LOSS = "Yeom et al., Privacy risk in machine learning, CSF 2018"
EMBEDDINGS = "Song and Raghunathan, Information leakage in embedding models, CCS 2020"
OVERLEARNING = "Song and Shmatikov, Overlearning reveals sensitive attributes, ICLR 2020"
OURS = "our own"


@dataclass(frozen=True)
class Line:
    """One line of a table of attacks."""

    key: str  # of the figure
    title: str  # short enough for a terminal


@dataclass(frozen=True)
class Kind:
    """One kind of attack, explained."""

    name: str
    who: str
    how: str
    needs: str
    reference: str


LABELS = (
    Line("label.norm.first", "length, first epoch: AUC"),
    Line("label.norm.last", "length, last epoch: AUC"),
    Line("label.direction.first", "direction, first epoch"),
    Line("label.direction.all", "direction, all epochs"),
    Line("label.clusters", "clusters, all epochs"),
    Line("label.gradients.100", "classifier, 100 labels"),
    Line("label.completion.10", "completion, 10 labels"),
    Line("label.own.10", "… from raw columns"),
    Line("label.completion.50", "completion, 50 labels"),
    Line("label.own.50", "… from raw columns"),
    Line("label.completion.100", "completion, 100 labels"),
    Line("label.own.100", "… from raw columns"),
    Line("label.direction.control", "control: shuffled rows"),
)
FEATURES = (
    Line("features.linear.50", "linear inverse, 50 rows"),
    Line("features.network.50", "network inverse, 50 rows"),
    Line("features.linear.200", "linear inverse, 200 rows"),
    Line("features.network.200", "network inverse, 200 rows"),
    Line("features.bottom.initial", "bottom known, untrained"),
    Line("features.bottom.trained", "bottom known, trained"),
    Line("features.categories.200", "categories, 200 rows"),
    Line("features.categories.trained", "categories, bottom known"),
)
PROPERTIES = (
    Line("property.passive-1", "passive-1's embeddings"),
    Line("property.passive-1.raw", "… its raw columns"),
    Line("property.passive-2", "passive-2's embeddings"),
    Line("property.passive-2.raw", "… its raw columns"),
)
MODELS = {"original": "original", "unlearned": "FedORA", "retrain": "Retrain"}
MEMBERSHIP = tuple(
    Line(f"membership.{role}.{model}.{which}", f"{role}, {rows}, {title}")
    for role in ("active", "passive")
    for which, rows in (("gone", "forgotten"), ("kept", "kept"))
    for model, title in MODELS.items()
)
OUTSIDERS = (
    Line("coordinator.group.1", "coordinator, groups of 1"),
    Line("coordinator.group.10", "coordinator, groups of 10"),
    Line("coordinator.group.50", "coordinator, groups of 50"),
    Line("outsider.rows", "outsider, rows of batches"),
    Line("outsider.labels", "outsider, labels"),
)
GROUPS = {
    "Labels, by a passive party (balanced accuracy; AUC for length)": LABELS,
    "Rows, by the active party (R²; share named right for categories)": FEATURES,
    "Properties, by the active party (balanced accuracy)": PROPERTIES,
    "Membership, by both kinds of party (AUC)": MEMBERSHIP,
    "Coordinator and outsider (share right)": OUTSIDERS,
}

# The strongest of these counts where defences are compared.
LABEL_ATTACKS = ("label.direction.first", "label.direction.all", "label.clusters", "label.gradients.100")
ROW_ATTACKS = ("features.linear.200", "features.network.200", "features.bottom.trained")
ROW_ATTACKS_OFTEN = tuple(f"{name}.often" for name in ROW_ATTACKS)

EXPLAINED = (
    Kind(
        "length of gradients",
        "passive",
        "rows of the rarer class are fitted worse, so that their gradients are longer",
        "nothing; two classes",
        SPLIT,
    ),
    Kind(
        "direction of gradients",
        "passive",
        "gradients of one class point one way: every row gets the class of the known row it points along with",
        "one label per class",
        SPLIT,
    ),
    Kind(
        "clusters of gradients",
        "passive",
        "k-means over directions, as many clusters as classes; each is named by the class it has most of, which is as "
        "well as could be done",
        "how many classes there are",
        CLUSTERING,
    ),
    Kind(
        "classifier on gradients",
        "passive",
        "a logistic regression over the main components of all epochs' directions, fitted to known labels, then also "
        "to the rows it is surest of: it finds what noise hides in single gradients",
        "100 labels",
        OURS,
    ),
    Kind(
        "model completion",
        "passive",
        "a head is put on the own trained bottom, fitted to known labels, then also to the rows it is surest of",
        "10, 50 or 100 labels",
        COMPLETION,
    ),
    Kind(
        "learned inverse",
        "active",
        "a ridge regression, or a network of one hidden layer, from embeddings back to columns",
        "50 or 200 rows of the passive party",
        INVERSION,
    ),
    Kind(
        "white-box inversion",
        "active",
        "the likeliest row that has the embedding, found through the bottom by Levenberg and Marquardt's steps",
        "the bottom's parameters; mean and deviation of the columns",
        INVERSION,
    ),
    Kind(
        "property inference",
        "active",
        "a logistic regression from one party's embeddings to what only another party holds",
        "the property of 100 rows",
        OVERLEARNING,
    ),
    Kind("membership by loss", "active", "rows that were trained on are fitted better", "labels, which it has", LOSS),
    Kind(
        "membership by embedding",
        "passive",
        "a logistic regression from its own embeddings, their sizes and length",
        "half of the members and half of the others",
        EMBEDDINGS,
    ),
    Kind(
        "accuracy of groups",
        "coordinator",
        "a model made to say one class only, asked for its accuracy over a group, tells that class's share in it",
        "a request per group",
        OURS,
    ),
    Kind(
        "sizes of messages",
        "outsider",
        "a message's size divided by that of a row is the number of rows; sizes with true labels are compared to sizes "
        "with shuffled ones",
        "the width of embeddings",
        OURS,
    ),
)
