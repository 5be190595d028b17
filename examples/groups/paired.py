"""
Two samples of each donor
=========================

Ten donors gave a sample before a treatment and one a week later, simulated. Donors differ by more than the
treatment changes, so that samples are compared within donors.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skmix import compose

# %%
# Five kinds of cells. Treatment halves the rarest one and doubles the second; donors differ by more.
random = np.random.default_rng(0)
centres = 10.0 * random.normal(size=(5, 3))
tables, about = [], []
for donor in range(10):
    usual = np.array([40.0, 20.0, 20.0, 15.0, 5.0]) * np.exp(random.normal(size=5))
    for day in ("day 0", "day 7"):
        odds = usual * np.exp(0.2 * random.normal(size=5))
        odds *= [1, 2, 1, 1, 0.5] if day == "day 7" else 1.0
        kind = random.choice(5, 1000, p=odds / odds.sum())
        cells = pd.DataFrame(
            centres[kind] + random.normal(size=(1000, 3)), columns=["CD3", "CD4", "CD8"]
        )
        about.append({"sample": f"{donor}, {day}", "day": day, "donor": donor})
        tables.append(cells.assign(sample=about[-1]["sample"]))

# %%
# The metadata table defines which samples are compared. It is checked before the fit.
study = compose(
    pd.concat(tables),
    sample="sample",
    n_kernels=5,
    metadata=pd.DataFrame(about),
    condition="day",
    pair="donor",
)
print(study.compare().table.drop(columns="p_value").round(3).to_string(index=False))

# %%
# Without pairs, the differences among donors hide those between the days.
alone = study.compare("day").table
print(alone.drop(columns="p_value").round(3).to_string(index=False))

# %%
# A panel for each population, the clearest difference first. Lines join the samples of a donor.
study.compare().plot()
plt.show()
